"""The recent history on the launcher: the list, and launching something again."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from backendai.domain.accounts.models import User
from backendai.domain.catalog.models import Image, ResourcePreset
from backendai.domain.compute.models import ComputeSession, LaunchRecord
from backendai.domain.compute.services.launching.create import create_session
from backendai.domain.compute.services.launching.recent import launch_and_remember, recent_launches
from backendai.domain.compute.spec import SessionSpec
from tests.cast import Cast
from tests.factories import make_agent, make_group, make_image, make_session
from tests.web.conftest import HTMX

pytestmark = pytest.mark.django_db
Browse = Callable[[User], Client]
LAUNCH, LIST = "/sessions/new/", "/sessions/new/recent/"


@pytest.fixture
def site(cast: Cast) -> Cast:
    """One image, one group, one agent."""
    make_image()
    make_agent(cpu=32, mem="32g")
    return cast


def launch(user: User, **over: Any) -> LaunchRecord:
    spec = SessionSpec(**({"image": "python", "name": "run-1", "resources": {"cpu": "2", "mem": "1g"}} | over))
    launch_and_remember(user, spec, now=timezone.now())
    return recent_launches(user)[0]


def typed(site: Cast, **over: Any) -> dict[str, Any]:
    values = {"image": "python", "name": "run-1", "session_type": "interactive", "project": str(site.project.pk)}
    return values | {"resource_group": "default", "preset": "", "cpu": "2", "mem": "1g"} | over


def sent(form: Any) -> dict[str, Any]:
    """Return what a browser sends of the form that it was shown."""
    return {name: form.data.getlist(name) for name in form.data}


def test_the_form_is_remembered_once_and_a_refusal_not_at_all(site: Cast, browse: Browse) -> None:
    client = browse(site.alice)
    for _ in range(2):
        assert client.post(LAUNCH, typed(site, request_key="once")).status_code == 302
    assert client.post(LAUNCH, typed(site, name="too-large", cpu="64")).status_code == 422
    assert [record.name for record in recent_launches(site.alice)] == ["run-1"]
    assert 'href="/sessions/new/recent/"' in client.get(LAUNCH).content.decode()


def test_one_click_fills_the_form_and_leads_to_the_review(site: Cast, browse: Browse) -> None:
    asked = {"session_type": "batch", "startup_command": "echo hi", "batch_timeout": timedelta(hours=2)}
    environ = {"EPOCHS": "3", "API_KEY": "s3cret"}
    later = timezone.now() + timedelta(days=1)
    record = launch(site.alice, environ=environ, cluster_size=2, preopen_ports=[8080], starts_at=later, **asked)
    client = browse(site.alice)
    assert f"{LAUNCH}?recent={record.pk}&amp;step=5" in client.get(LIST).content.decode()
    answer = client.get(LAUNCH, {"recent": str(record.pk), "step": "5"})
    form, page = answer.context["form"], answer.content.decode()
    assert answer.status_code == 200
    assert set(form.errors) == {"environ"}, "the value of the secret is to be typed again"
    assert "API_KEY" in page
    assert "The start time is not kept" in page
    assert "s3cret" not in page
    again = sent(form) | {"environ.value": ["3", "again"]}
    assert again["name"][0].startswith("run-1-"), "a live session has the name"
    assert len(again["name"][0]) == len("run-1-abcd")
    assert client.post(LAUNCH, again).status_code == 302
    first, second = ComputeSession.objects.order_by("created_at")
    for name in ("image_id", "session_type", "startup_command", "batch_timeout", "cluster_size", "slots"):
        assert getattr(first, name) == getattr(second, name), name
    assert second.preopen_ports == [8080]
    assert second.environ == {"EPOCHS": "3", "API_KEY": "again"}
    assert second.starts_at is None


def test_several_sessions_get_another_name_while_one_of_their_numbered_names_is_taken(
    site: Cast, browse: Browse
) -> None:
    client, name = browse(site.alice), "n" * 62
    assert client.post(LAUNCH, typed(site, name=name, count="2", cpu="1")).status_code == 302
    record = recent_launches(site.alice)[0]
    form = client.get(LAUNCH, {"recent": str(record.pk)}).context["form"]
    assert not form.errors and re.fullmatch(r"n{57}-[a-z2-9]{4}", form["name"].value())
    assert client.post(LAUNCH, sent(form)).status_code == 302
    assert ComputeSession.objects.live().count() == 4
    ComputeSession.objects.filter(name__in=[f"{name}-1", f"{name}-2"]).update(status="TERMINATED")
    assert client.get(LAUNCH, {"recent": str(record.pk)}).context["form"]["name"].value() == name


def test_a_free_name_and_a_preset_are_taken_over_as_they_are(site: Cast, browse: Browse) -> None:
    ResourcePreset.objects.create(name="medium", slots={"cpu": 4, "mem": "2g"})
    record = launch(site.alice, preset="medium", resources={})
    ComputeSession.objects.update(status="TERMINATED")
    answer = browse(site.alice).get(LAUNCH, {"recent": str(record.pk), "step": "5"})
    form = answer.context["form"]
    assert not form.errors
    assert (form["name"].value(), form["preset"].value(), answer.context["step"]) == ("run-1", "medium", 5)


def test_what_is_not_there_any_more_is_said_where_it_is_missing(site: Cast, browse: Browse) -> None:
    make_image("old")
    make_group("gone")
    ResourcePreset.objects.create(name="medium", slots={"cpu": 4, "mem": "2g"})
    record = launch(site.alice, image="old", resource_group="gone", preset="medium", resources={})
    Image.objects.filter(name="old").update(is_enabled=False)
    make_group("gone").agents.all().delete()
    type(make_group("gone")).objects.filter(name="gone").update(is_active=False)
    ResourcePreset.objects.all().delete()
    client = browse(site.alice)
    assert "No longer available: image old, resource group gone, preset medium" in client.get(LIST).content.decode()
    answer = client.get(LAUNCH, {"recent": str(record.pk), "step": "5"})
    assert answer.status_code == 200
    errors = answer.context["form"].errors
    assert errors["image"] == ["Image old no longer exists, or is not open to you."]
    assert errors["resource_group"] == ["Resource group gone no longer exists, or is not open to you."]
    assert errors["preset"] == ["Preset medium no longer exists; its amounts are filled in."]
    form, page = answer.context["form"], answer.content.decode()
    assert (form["preset"].value(), form["cpu"].value(), form["mem"].value()) == ("", "4", "2")
    assert page.count("review-card is-wrong") == 2
    assert not form["image"].value(), "nothing else is taken in its place"
    assert not form["resource_group"].value()


def test_an_administrator_finds_again_for_whom_it_was(site: Cast, browse: Browse) -> None:
    record = launch(site.dana, owner=site.charlie.email, project=str(site.elsewhere.pk))
    client = browse(site.dana)
    answer = client.get(LAUNCH, {"recent": str(record.pk)})
    assert answer.context["owner"] == site.charlie
    assert not answer.context["form"].errors
    User.objects.filter(pk=site.charlie.pk).update(is_active=False)
    gone = client.get(LAUNCH, {"recent": str(record.pk)})
    assert "The original owner no longer exists" in gone.content.decode()


def test_nobody_else_is_filled_in_or_shown_anything(site: Cast, browse: Browse) -> None:
    record = launch(site.alice, name="alices-own", startup_command="secret plan", session_type="batch")
    for other in (site.bob, site.charlie, site.dana):
        client = browse(other)
        for address in (LIST, f"{LAUNCH}?recent={record.pk}", f"{LAUNCH}?recent=nonsense"):
            page = client.get(address)
            assert page.status_code == 200
            assert "alices-own" not in page.content.decode()
            assert "secret plan" not in page.content.decode()
        assert client.post(f"{LIST}{record.pk}/", {"action": "delete"}).status_code == 404
    assert LaunchRecord.objects.filter(pk=record.pk).exists()


def test_one_renames_pins_and_deletes_in_place(site: Cast, browse: Browse) -> None:
    record = launch(site.alice)
    client, address = browse(site.alice), f"{LIST}{record.pk}/"
    assert client.post(address, {"action": "pin"})["Location"] == LIST
    page = client.post(address, {"action": "rename", "name": "nightly"}, **HTMX).content.decode()
    assert "<!doctype" not in page.lower()
    assert "nightly" in page
    assert 'aria-pressed="true"' in page
    refused = client.post(address, {"action": "rename", "name": "a <b>"}, **HTMX).content.decode()
    assert "is not allowed" in refused
    assert 'value="a &lt;b&gt;"' in refused
    client.post(address, {"action": "unpin"})
    client.post(address, {"action": "delete"})
    assert recent_launches(site.alice) == []
    assert "Nothing launched yet" in client.get(LIST, **HTMX).content.decode()


def test_the_list_costs_the_same_however_long_it_is(
    site: Cast, browse: Browse, django_assert_max_num_queries: Any
) -> None:
    client = browse(site.alice)
    for number in range(2):
        parameters = {"image": f"python-{number}", "resource_group": "default", "preset": "x", "resources": {"cpu": 1}}
        rows = [LaunchRecord(owner=site.alice, name=f"r-{n}", parameters=parameters, is_pinned=True) for n in range(8)]
        LaunchRecord.objects.bulk_create(rows)
        with django_assert_max_num_queries(7):
            client.get(LIST, **HTMX)


def test_starting_a_session_again_goes_the_same_way(site: Cast, browse: Browse) -> None:
    model = make_session(site.alice, environ={"API_KEY": "mine"}, preopen_ports=[9000])
    page = browse(site.alice).get(LAUNCH, {"like": str(model.pk)})
    form = page.context["form"]
    assert form["environ"].value() == {"API_KEY": "mine"}
    assert form["preopen_ports"].value() == "9000"
    assert not form.is_bound
    assert create_session(site.alice, SessionSpec(image="python")).name != model.name
    assert reverse("web:recent") == LIST
