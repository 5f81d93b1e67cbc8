"""The administration page of what waits."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Callable
from typing import Any

import pytest
from django.contrib.messages import get_messages
from django.test import Client
from django.urls import reverse
from django.utils import timezone
from pytest_django import DjangoAssertNumQueries

from backendai.domain.accounts.models import User
from backendai.domain.accounts.services import create_person
from backendai.domain.accounts.services.language import choose_language
from backendai.domain.compute.models import ComputeSession
from backendai.domain.compute.services.placing.waits import Waiting, note_waits
from tests.cast import Cast
from tests.factories import make_agent, make_group, make_running_session, make_session
from tests.pages import markup
from tests.web.conftest import HTMX

pytestmark = pytest.mark.django_db
Browse = Callable[[User], Client]
ADDRESS = "/manage/queue/"


def names(client: Client, **query: Any) -> list[str]:
    return [row.record.name for row in client.get(ADDRESS, query).context["table"].page.object_list]


def test_it_shows_who_is_next_in_each_group_and_why_each_waits(cast: Cast, browse: Browse) -> None:
    make_group("lab")
    make_running_session(cast.alice, name="runs")
    waiting = {name: make_session(cast.alice, name=name) for name in ("third", "first", "second", "unseen")}
    make_session(cast.bob, name="in-lab", resource_group="lab", cluster_size=2)
    places = {"first": 1, "second": 2, "third": 3}
    waits = [
        Waiting(waiting[name].pk, "no-room", f"{name}: 8 cores are short.", {"never": name == "third"}, position=place)
        for name, place in places.items()
    ]
    note_waits(waits, now=timezone.now())
    dana = browse(cast.dana)
    assert names(dana) == ["first", "second", "third", "unseen", "in-lab"]
    assert names(dana, q="second") == ["second"]
    assert names(dana, resource_group=str(make_group("lab").pk)) == ["in-lab"]
    page = markup(dana.get(ADDRESS))
    assert "first: 8 cores are short." in page
    assert '<div class="wide-rows"><table' in page, "a table wider than its card scrolls in it"
    assert "Cannot start" in page
    assert "× 2" in page
    assert f'name="session" value="{waiting["first"].pk}" form="chosen"' in page
    assert "<html" not in markup(dana.get(ADDRESS, **HTMX))
    rows = list(csv.DictReader(io.StringIO(b"".join(dana.get(ADDRESS, {"export": "csv"})).decode("utf-8-sig"))))
    assert [(row["Order"], row["Session"], row["Priority"]) for row in rows][:2] == [
        ("1", "first", "10"),
        ("2", "second", "10"),
    ]


def test_a_priority_is_changed_in_its_row(cast: Cast, browse: Browse) -> None:
    session = make_session(cast.alice, name="waits")
    dana, address = browse(cast.dana), reverse("manage:queue-priority", args=[session.pk])
    answer = dana.post(address, {"priority": "55", "back": "q=wa&page=1"})
    assert answer["Location"] == f"{ADDRESS}?q=wa&page=1"
    assert ComputeSession.objects.get().priority == 55
    for wrong in ("", "many", "101"):
        answer = dana.post(address, {"priority": wrong})
        assert answer.status_code == 302
        message = list(get_messages(answer.wsgi_request))[-1]
        assert message.level_tag == "error"
        assert message.message.startswith("waits: Priority"), "of many rows, which and what"
    choose_language(cast.dana, "ko")
    refused = list(get_messages(dana.post(address, {"priority": "101"}).wsgi_request))[-1].message
    assert "101" in refused and "is not between" not in refused
    assert ComputeSession.objects.get().priority == 55


def test_a_domain_admin_sees_the_queue_of_the_domain_and_others_none(cast: Cast, browse: Browse) -> None:
    admin = create_person("admin@example.com", password=None, role=User.Role.ADMIN, project=cast.elsewhere)
    make_session(cast.alice, name="hers")
    make_session(cast.charlie, name="his-own")
    client = browse(admin)
    assert names(client) == ["his-own"]
    session = ComputeSession.objects.get(name="hers")
    assert client.post(reverse("manage:queue-priority", args=[session.pk]), {"priority": "1"}).status_code == 404
    assert browse(cast.alice).get(ADDRESS).status_code == 404


def test_it_asks_as_often_for_many_as_for_one(
    cast: Cast, browse: Browse, django_assert_num_queries: DjangoAssertNumQueries
) -> None:
    dana = browse(cast.dana)
    make_session(cast.alice)
    with django_assert_num_queries(8) as used:  # who asks, groups, number, page, slot types, who is in front, forecasts
        dana.get(ADDRESS)
    for _ in range(5):
        make_session(cast.bob)
    with django_assert_num_queries(len(used)):
        dana.get(ADDRESS)


def waits_for_room(*sessions: ComputeSession) -> None:
    waits = [
        Waiting(session.pk, "insufficient-resources" if place == 1 else "behind-in-queue", "Waits.", position=place)
        for place, session in enumerate(sessions, 1)
    ]
    note_waits(waits, now=timezone.now())


def test_it_names_who_is_in_front_and_who_holds_what(
    cast: Cast, browse: Browse, django_assert_num_queries: DjangoAssertNumQueries
) -> None:
    agent = make_agent("node-1", cpu=100, mem="100g")
    running = [make_running_session(cast.bob, agent, name=f"holds-{number}") for number in range(7)]
    ComputeSession.objects.filter(pk=running[0].pk).update(ends_at=timezone.now())
    waits_for_room(make_session(cast.alice, name="large"), make_session(cast.alice, name="small"))
    dana = browse(cast.dana)
    with django_assert_num_queries(10):  # as without, and: holders, their agents
        page = re.sub("[\u2068\u2069]", "", markup(dana.get(ADDRESS)))
    head = " ".join(re.sub("<[^>]+>", " ", page.partition('class="queue-head"')[2].partition("</section>")[0]).split())
    assert "First in line: large (alice@example.com), which requests 1 CPU" in head
    assert head.count("node-1") == 5
    assert head.count("no end known") == 4 and head.count("ends by") == 1
    assert "2 more sessions" in head
    assert "small" not in head


def test_a_domain_admin_sees_only_holders_of_the_domain(cast: Cast, browse: Browse) -> None:
    admin = create_person("admin@example.com", password=None, role=User.Role.ADMIN, project=cast.elsewhere)
    make_running_session(cast.alice, make_agent("node-1"), name="hers")
    waits_for_room(make_session(cast.charlie, name="his-own"))
    page = markup(browse(admin).get(ADDRESS))
    assert "his-own" in page and "hers" not in page


def test_the_ticked_sessions_get_one_priority_or_go_to_the_front(cast: Cast, browse: Browse) -> None:
    make_group("lab")
    first, second = make_session(cast.alice, name="first"), make_session(cast.bob, name="second")
    ahead, lab = make_session(cast.alice, priority=30), make_session(cast.bob, resource_group="lab", name="alone")
    dana, address = browse(cast.dana), reverse("manage:queue-priorities")
    chosen = {"session": [first.pk, second.pk, lab.pk], "back": f"{ADDRESS}?q=x"}

    def priorities() -> list[int]:
        return [ComputeSession.objects.get(pk=session.pk).priority for session in (first, second, lab, ahead)]

    answer = dana.post(address, chosen | {"action": "set", "priority": "20"})
    assert answer["Location"] == f"{ADDRESS}?q=x"
    assert priorities() == [20, 20, 20, 30]
    dana.post(address, chosen | {"action": "front"})
    assert priorities() == [31, 31, 20, 30]
    for wrong in ({"priority": "many"}, {"priority": "101"}, {"priority": ""}, {"session": ["x"], "priority": "1"}):
        answer = dana.post(address, chosen | {"action": "set"} | wrong)
        assert {message.level_tag for message in get_messages(answer.wsgi_request)} >= {"error"}
    assert priorities() == [31, 31, 20, 30]
    ComputeSession.objects.filter(pk=ahead.pk).update(priority=100)
    answer = dana.post(address, chosen | {"action": "front", "session": [first.pk]})
    assert "100" in str([message.message for message in get_messages(answer.wsgi_request)])
    assert priorities() == [31, 31, 20, 100]


def test_sessions_of_others_are_not_moved_by_a_domain_admin(cast: Cast, browse: Browse) -> None:
    admin = create_person("admin@example.com", password=None, role=User.Role.ADMIN, project=cast.elsewhere)
    hers = make_session(cast.alice)
    browse(admin).post(reverse("manage:queue-priorities"), {"action": "set", "priority": "1", "session": [hers.pk]})
    hers.refresh_from_db()
    assert hers.priority == 10
