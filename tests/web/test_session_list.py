"""The list of sessions."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from backendai.accounts.models import User
from backendai.activity.models import BackgroundJob
from backendai.catalog.services import BUILD_JOB
from backendai.compute.models import ComputeSession
from backendai.compute.services.ending import terminate_session
from backendai.compute.services.waits import Waiting, note_waits
from tests.cast import Cast
from tests.factories import make_agent, make_image, make_running_session, make_session
from tests.web.conftest import HTMX

pytestmark = pytest.mark.django_db
Browse = Callable[[User], Client]


def test_it_lists_ones_own_sessions_and_nobody_elses(cast: Cast, browse: Browse) -> None:
    make_session(cast.alice, name="mine")
    make_session(cast.bob, name="not-mine")
    page = browse(cast.alice).get(reverse("web:sessions")).content.decode()
    assert "mine</bdi></a>" in page
    assert "not-mine" not in page


def test_it_lists_everybodys_sessions_with_their_owners_for_a_superadmin(cast: Cast, browse: Browse) -> None:
    make_session(cast.alice, name="hers")
    page = browse(cast.dana).get(reverse("web:sessions")).content.decode()
    assert "hers</bdi></a>" in page
    assert "alice@example.com" in page


def test_it_asks_the_database_as_often_for_many_sessions_as_for_one(
    cast: Cast, browse: Browse, django_assert_num_queries: Callable[..., object]
) -> None:
    client, agent = browse(cast.alice), make_agent(cpu=64, mem="64g")
    make_running_session(cast.alice, agent)
    # 2 for who asks, 1 counts, 3 for the page, 1 for builds, 4 for the resources, slot types, site settings
    with django_assert_num_queries(13):
        client.get(reverse("web:sessions"))
    for number in range(6):
        make_running_session(cast.alice, agent, name=f"more-{number}", cluster_size=2)
    with django_assert_num_queries(13):
        client.get(reverse("web:sessions"))


def test_it_moves_ended_sessions_to_the_other_tab_and_counts_both(cast: Cast, browse: Browse) -> None:
    make_session(cast.alice, name="waits")
    terminate_session(make_session(cast.alice, name="gone"), cast.alice)
    client = browse(cast.alice)
    active = client.get(reverse("web:sessions"))
    finished = client.get(reverse("web:sessions"), {"view": "finished"})
    assert (active.context["active_count"], active.context["finished_count"]) == (1, 1)
    assert [each.name for each in active.context["page"]] == ["waits"]
    assert [each.name for each in finished.context["page"]] == ["gone"]


def test_it_finds_sessions_by_every_word_typed(cast: Cast, browse: Browse) -> None:
    make_session(cast.alice, name="train-bert")
    make_session(cast.alice, name="train-resnet")
    page = browse(cast.alice).get(reverse("web:sessions"), {"q": "TRAIN bert"}, **HTMX).content.decode()
    assert "train-bert" in page
    assert "train-resnet" not in page
    assert "<html" not in page


def test_it_says_why_a_session_waits_and_its_place_in_the_queue(cast: Cast, browse: Browse) -> None:
    session = make_session(cast.alice)
    wait = Waiting(session.pk, "no-room", "cpu: 8 asked, 2 available.", position=3)
    note_waits([wait], now=timezone.now())
    row = browse(cast.alice).get(reverse("web:session_row", args=[session.pk])).content.decode()
    assert "cpu: 8 asked, 2 available." in row
    assert "place 3 in the queue" in row
    assert row.strip().startswith("<tr")


def test_it_shows_a_hostile_name_as_text(cast: Cast, browse: Browse) -> None:
    session = make_session(cast.alice)
    hostile = "<img src=x onerror=alert(1)>\"'{{ 7|add:7 }}"
    ComputeSession.objects.filter(pk=session.pk).update(name=hostile, status_message=hostile)
    client = browse(cast.alice)
    for address in (reverse("web:sessions"), reverse("web:session", args=[session.pk])):
        page = client.get(address).content.decode()
        assert "<img src=x" not in page
        assert "&lt;img src=x onerror=alert(1)&gt;" in page
    page = client.get(reverse("web:sessions"), {"q": '"><script>alert(1)</script>'}).content.decode()
    assert "<script>alert" not in page


def test_it_hides_foreign_rows(cast: Cast, browse: Browse) -> None:
    session = make_session(cast.alice)
    assert browse(cast.charlie).get(reverse("web:session_row", args=[session.pk])).status_code == 404


def test_it_explains_an_empty_list(cast: Cast, browse: Browse) -> None:
    page = browse(cast.alice).get(reverse("web:sessions")).content.decode()
    assert "Start your first session" in page
    assert "No agent takes sessions now" in page or "No resource group" in page


def test_it_shows_the_build_that_the_first_session_waits_for(cast: Cast, browse: Browse) -> None:
    make_image(is_built_here=True)
    job = BackgroundJob(kind=BUILD_JOB, subject="local/python:latest", progress=0.41, message="Unpacking.")
    job.save()
    client = browse(cast.alice)
    page = client.get(reverse("web:sessions")).content.decode()
    assert 'is being built: <span class="number">41 %</span>' in page
    assert 'hx-trigger="every 4s"' in page
    job.status = BackgroundJob.Status.DONE
    job.save()
    page = client.get(reverse("web:sessions")).content.decode()
    assert "is being built" not in page
    assert 'hx-trigger="every 4s"' not in page


def test_it_shows_what_is_free_in_each_group(cast: Cast, browse: Browse) -> None:
    make_running_session(cast.alice, make_agent(cpu=4, mem="8g"), resources={"cpu": 1, "mem": "2g"})
    rooms = browse(cast.bob).get(reverse("web:resources_panel")).context["rooms"]
    bars = {bar.slot: (bar.free_text, bar.total_text, bar.percent) for bar in rooms[0].bars}
    assert bars == {"cpu": ("3", "4", 25), "mem": ("6 GiB", "8 GiB", 25)}
