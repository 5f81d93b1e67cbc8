"""The steps of a new endpoint, its rules, and its numbers tried on the last day."""

from __future__ import annotations

import re
from datetime import timedelta

import pytest
from django.core.files.uploadedfile import SimpleUploadedFile
from django.test import Client
from django.utils import timezone

from backendai.domain.serving.models import AutoScalingRule, Endpoint, Revision
from backendai.domain.serving.services.readings import ProxyCounts, record
from tests.cast import Cast
from tests.factories import make_agent
from tests.serving.world import a_revision, make_endpoint
from tests.web.test_endpoints import NEW
from tests.web.test_endpoints import alice as alice

pytestmark = pytest.mark.django_db
DEFINITION = "models:\n- name: Small Model\n  service: {start_command: serve it, port: 9000}\n"


def test_a_definition_fills_the_fields_and_creates_nothing(alice: Client) -> None:
    file = SimpleUploadedFile("model-definition.yaml", DEFINITION.encode())
    page = alice.post("/endpoints/new/", {"go": "read", "definition_file": file, "cpu": "3"}).content.decode()
    for shown in ('value="small-model"', 'value="Small Model"', ">\nserve it<", 'value="9000"', 'value="3"'):
        assert shown in page
    assert not Endpoint.objects.exists()


def test_a_wrong_definition_is_refused_at_its_field_alone(alice: Client) -> None:
    answer = alice.post("/endpoints/new/", {"go": "read", "definition": "models: 7"})
    page = answer.content.decode()
    assert (answer.status_code, "list of models" in page) == (422, True)
    assert "This field is required" not in page


def test_the_placement_says_how_many_replicas_find_room(alice: Client, cast: Cast) -> None:
    make_agent(cpu=2, mem="8g")
    said = NEW | {"project": str(cast.project.pk), "maximum": "3", "go": "check"}
    page = alice.post("/endpoints/new/", said).content.decode()
    assert "2 of at most 3 replicas find room now" in page
    assert "1 CPU core, 512 MiB of memory" in page
    assert not Endpoint.objects.exists()
    assert 'id="endpoint-preview"' in page
    assert page.count('formaction="/endpoints/new/#endpoint-preview"') == 2, "the browser scrolls to the answer"


def test_access_and_sleep_are_asked_for(alice: Client, cast: Cast) -> None:
    more = {"asleep_minutes": "5", "project": str(cast.project.pk), "origins": "https://a.example\nhttps://b.example"}
    alice.post("/endpoints/new/", NEW | more)
    made = Endpoint.objects.get()
    assert made.origins == ["https://a.example", "https://b.example"]
    assert made.asleep_after == timedelta(minutes=5)
    assert "is_public" not in alice.get("/endpoints/new/").content.decode()


def test_rules_are_added_and_removed(alice: Client, cast: Cast) -> None:
    url = f"/endpoints/{make_endpoint(cast.alice, maximum=3).pk}/"
    for metric in ("latency", "gpu"):
        alice.post(f"{url}rules/", {"metric": metric, "up_over": "2.5", "step": "1"})
    assert [one.metric for one in AutoScalingRule.objects.all()] == ["latency", "gpu"]
    for over in ({"up_over": ""}, {"up_over": "1", "down_under": "2"}, {"up_over": "nan"}, {"metric": "luck"}):
        wrong = alice.post(f"{url}rules/", {"metric": "latency", "up_over": "2", "step": "1", **over})
        assert (wrong.status_code, AutoScalingRule.objects.count()) == (422, 2)
    alice.post(f"{url}rules/", {"remove": str(AutoScalingRule.objects.first().pk)})
    assert [one.metric for one in AutoScalingRule.objects.all()] == ["gpu"]


def test_numbers_are_tried_on_the_last_day_and_not_saved(alice: Client, cast: Cast) -> None:
    endpoint, now = make_endpoint(cast.alice, maximum=2), timezone.now()
    url = f"/endpoints/{endpoint.pk}/scale/"
    numbers = {"minimum": 1, "maximum": 5, "target": 1, "go": "try"}
    assert "nothing to try the numbers on" in alice.post(url, numbers).content.decode()
    for minute in range(30):
        tally = ProxyCounts(endpoint.pk, 1, requests=minute * 60, completions=minute * 60, busy_seconds=minute * 180.0)
        record("one", "boot", 60.0 * minute, [tally], [], now=now - timedelta(minutes=40 - minute))
    page = alice.post(url, numbers).content.decode()
    assert "at most 3 at once" in page
    columns = re.findall(r'endpoint-column"[^>]* width="([\d.]+)"', page.partition("endpoint-tried")[2])
    assert round(sum(map(float, columns))) == 480, "they take the whole width"
    assert Endpoint.objects.get().maximum == 2
    assert alice.post(url, numbers | {"minimum": 7}).status_code == 422


def test_an_update_by_the_form_keeps_folders_and_what_it_does_not_ask_for(alice: Client, cast: Cast) -> None:
    endpoint = make_endpoint(cast.alice, revision=a_revision(drain_timeout=7.0, cluster_size=2))
    page = alice.get(f"/endpoints/{endpoint.pk}/update/").content.decode()
    assert 'name="mounts"' in page
    alice.post(f"/endpoints/{endpoint.pk}/update/", NEW)
    made = Endpoint.objects.get().next
    assert (made.drain_timeout, made.cluster_size) == (timedelta(seconds=7), 2)


def test_a_command_of_several_lines_has_line_ends_that_a_shell_understands(alice: Client, cast: Cast) -> None:
    alice.post("/endpoints/new/", NEW | {"project": str(cast.project.pk), "command": "cd /srv\r\nexec serve"})
    assert Revision.objects.get().command == "cd /srv\nexec serve"
