"""The dashboard, and the same limits over REST."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from backendai.domain.accounts.models import Membership, ResourcePolicy, User
from backendai.domain.accounts.services import get_or_create_project
from backendai.domain.cluster.site import change_site
from backendai.domain.compute.models import ComputeSession
from backendai.domain.usage.models import UsageSample
from tests.api.callers import Caller
from tests.cast import Cast
from tests.factories import make_agent, make_group, make_running_session, make_session
from tests.pages import markup
from tests.web.conftest import HTMX

pytestmark = pytest.mark.django_db
Browse = Callable[[User], Client]
LIMITS = "/api/v1/me/limits/"


def words(page: Any) -> str:
    return re.sub(r"\s+", " ", re.sub(r"<[^>]+>", " ", markup(page)))


def test_it_names_the_strictest_limit_and_shows_what_is_left(cast: Cast, browse: Browse) -> None:
    cast.alice.policy = ResourcePolicy.objects.create(name="own", slots={"cpu": 8}, max_session_lifetime=timedelta(2))
    cast.alice.save()
    cast.project.policy = ResourcePolicy.objects.create(name="ours", slots={"cpu": 5}, max_sessions=4)
    cast.project.save()
    make_running_session(cast.alice, make_agent(cpu=8), resources={"cpu": 2, "mem": "1g"})
    make_session(cast.bob, resources={"cpu": 3, "mem": "1g"})
    page = browse(cast.alice).get(reverse("web:dashboard"))
    shown = words(page)
    assert "CPU 2 of 5 · 3 waiting · 3 left 40 % limit of project vision" in shown
    assert "Memory 1 GiB of ∞" in shown
    assert "Sessions 1 of 4 · 1 waiting · 3 left" in shown
    assert "maximum lifetime 2d" in shown
    assert "Highest priority ∞" in shown
    assert "The cluster" not in shown
    rest = Caller(cast.alice).get(LIMITS).json()
    assert (rest["remaining"]["cpu"], rest["strictest"]["cpu"], rest["strictest"]["mem"]) == ("3", "project", None)
    assert (rest["remaining"]["mem"], rest["remaining_sessions"]) == (None, 3)
    user = rest["limits"][1]
    assert (user["policy"], user["max_session_lifetime"], user["unnamed_slots"]) == ("own", "2 00:00:00", "unlimited")


def test_a_limit_of_nothing_is_shown_as_0_and_full(cast: Cast, browse: Browse) -> None:
    make_group()
    cast.alice.policy = ResourcePolicy.objects.create(
        name="p", slots={"cpu": 1}, unnamed_slots="limited", max_sessions=0
    )
    cast.alice.save()
    page = browse(cast.alice).get(reverse("web:dashboard"))
    assert "Memory 0 B of 0 B · 0 B left" in words(page)
    assert "Sessions 0 of 0 · 0 left" in words(page)
    assert 'aria-label="Sessions: 0 of 0 held">100 %' in markup(page)


def test_group_and_project_can_be_chosen_and_a_foreign_one_is_not_shown(cast: Cast, browse: Browse) -> None:
    second = get_or_create_project("default", "speech")
    Membership.objects.create(user=cast.alice, project=second)
    make_agent(group=make_group("east"), cpu=3)
    make_agent(group=make_group("secret", is_public=False), cpu=7)
    make_group("west")
    client = browse(cast.alice)
    chosen = client.get(reverse("web:dashboard"), {"group": "east", "project": second.pk}, **HTMX)
    assert (chosen.context["room"].group.name, chosen.context["limits"].project) == ("east", second)
    assert b"<html" not in chosen.content
    foreign = client.get(reverse("web:dashboard"), {"group": "secret", "project": cast.elsewhere.pk})
    assert (foreign.context["room"].group.name, foreign.context["limits"].project) == ("east", cast.project)
    make_session(cast.alice, resource_group="west")
    assert client.get(reverse("web:dashboard")).context["room"].group.name == "west", "where one launched last"
    assert "secret" not in words(foreign)
    refused = Caller(cast.alice).get(LIMITS, project=str(cast.elsewhere.pk))
    assert (refused.status_code, refused.json()["field"]) == (400, "project")


def test_who_is_in_no_project_still_sees_what_is_theirs(cast: Cast, browse: Browse) -> None:
    Membership.objects.filter(user=cast.alice).delete()
    assert "No resource group is open to you yet" in words(browse(cast.alice).get(reverse("web:dashboard")))
    rest = Caller(cast.alice).get(LIMITS).json()
    assert (rest["project"], [one["scope"] for one in rest["limits"]]) == (None, ["key-pair", "user"])


def test_a_superadmin_sees_how_the_cluster_stands(cast: Cast, browse: Browse) -> None:
    make_running_session(cast.alice, make_agent())
    make_agent(status="LOST")
    make_session(cast.bob)
    cluster = browse(cast.dana).get(reverse("web:dashboard")).context["cluster"]
    chart, _, problems = cluster.pop("chart"), cluster.pop("now"), cluster.pop("problems")
    assert [word for word, *_ in problems] == ["lost"]
    assert cluster == {"active": 2, "waiting": 1, "agents": [("ALIVE", 1), ("LOST", 1)]}
    assert (len(chart["drawn"].columns), chart["title"]) == (30, "CPU hours")


def test_a_superadmin_sees_who_uses_waits_and_holds_what_lies_idle(cast: Cast, browse: Browse) -> None:
    capacity = {"cpu": "16", "mem": str(2**36), "cuda.device": "4"}
    agent = make_agent("gpu-01", capacity=capacity, notes=[{"code": "old", "message": "Old.", "fix": ""}])
    gpu = {"cpu": 1, "mem": "64m", "cuda.device": "1"}
    lazy = make_running_session(cast.alice, agent, name="lazy", resources=gpu)
    busy = make_running_session(cast.bob, agent, name="busy", resources=gpu)
    make_running_session(cast.dana, agent, name="many-cores", resources={"cpu": 8, "mem": "64m"})
    make_session(cast.bob, name="waits")
    make_agent("gone", status="LOST")
    make_agent("fine")
    for session, util in ((lazy, 0.01), (busy, 0.9)):
        UsageSample.objects.create(
            kernel=session.kernels.get(), at=timezone.now(), seconds=10, devices={"cuda.device": {"util": util}}
        )
    answer = browse(cast.dana).get(reverse("web:dashboard"))
    now = answer.context["cluster"]["now"]
    assert [email for email, _ in now.users] == [cast.alice.email, cast.bob.email, cast.dana.email]
    assert [session.name for session in now.waiting] == ["waits"]
    assert [session.name for session in now.idle] == ["lazy"]
    shown = words(answer)
    for part in ("Who holds most", "Waiting longest", "lost gone", "Old. gpu-01"):
        assert part in shown
    assert "Who holds most" not in words(browse(cast.alice).get(reverse("web:dashboard")))


def test_problems_of_agents_stand_once_by_kind_with_one_link_and_mere_notes_last(cast: Cast, browse: Browse) -> None:
    note = {"code": "old", "message": "Old.", "fix": ""}
    for number in range(6):
        make_agent(f"noted-{number}", notes=[note])
    make_agent("restored", unknown_kernels=2, unknown_running=2)
    for name in ("away-1", "away-2"):
        make_agent(name, status="LOST")
    answer = browse(cast.dana).get(reverse("web:dashboard"))
    box = words(answer).partition("Agents to look at")[2]
    assert "lost away-1, away-2 unknown kernels restored Old. noted-0, noted-1, noted-2 … (6 agents)" in box
    links = markup(answer).partition("Agents to look at")[2].partition("</ul>")[0]
    agents = reverse("manage:agents")
    assert re.findall('href="([^"]+)"', links) == [f"{agents}?status=LOST", reverse("manage:unknown-kernels"), agents]


def test_it_asks_the_database_as_often_for_many_sessions_as_for_one(
    cast: Cast, browse: Browse, django_assert_max_num_queries: Callable[..., Any]
) -> None:
    client, agent = browse(cast.dana), make_agent(cpu=64, mem="64g")
    make_running_session(cast.dana, agent)
    counts = set()
    for number in (1, 6):
        for _ in range(number):
            make_session(cast.dana)
        with django_assert_max_num_queries(28) as captured:
            client.get(reverse("web:dashboard"))
        counts.add(len(captured))
    assert len(counts) == 1


def test_it_says_how_much_more_one_can_have_in_a_group_and_what_stands_in_the_way(cast: Cast, browse: Browse) -> None:
    cast.alice.policy = ResourcePolicy.objects.create(name="own", slots={"cpu": 4})
    cast.alice.save()
    east, west = make_group("east"), make_group("west")
    make_running_session(cast.alice, make_agent(group=east, cpu=8, mem="4g"), resource_group="east")
    make_agent(group=west, cpu=2, mem="4g")
    client = browse(cast.alice)
    shown = words(client.get(reverse("web:dashboard"), {"group": "east"}))
    assert "CPU 1 used · 3 available 25 % limit of user alice@example.com" in shown
    assert "Memory 512 MiB used · 3.5 GiB available 12 % limited by free capacity" in shown
    assert "CPU 1 of 8 in use" in shown
    other = words(client.get(reverse("web:dashboard"), {"group": "west"}))
    assert "CPU 0 used · 2 available 0 % limited by free capacity" in other
    free = client.get(reverse("web:dashboard"), {"group": "east", "show": "free"})
    assert "CPU 7 of 8 free" in words(free)
    assert 'aria-label="CPU: 7 of 8 free">88 %' in markup(free)


def test_what_groups_have_is_shown_to_superadmins_alone_where_the_site_says_so(cast: Cast, browse: Browse) -> None:
    change_site(cast.dana, {"group_resources_visible": False}, now=timezone.now())
    make_running_session(cast.alice, make_agent(cpu=7))
    shown = words(browse(cast.alice).get(reverse("web:dashboard")))
    assert "CPU 1 used · ∞ available" in shown
    assert "of 7" not in shown and "6" not in re.findall(r"\d+", shown.partition("My sessions")[0])
    assert "CPU 1 of 7 in use" in words(browse(cast.dana).get(reverse("web:dashboard")))


def test_each_number_of_sessions_says_on_a_phone_which_status_it_counts(cast: Cast, browse: Browse) -> None:
    make_running_session(cast.alice, make_agent())
    make_session(cast.alice, name="waits")
    page = markup(browse(cast.alice).get(reverse("web:dashboard")))
    assert re.findall(r'data-label="(\w+)">1<', page) == ["Pending", "Running"]


def test_a_recent_session_whose_program_failed_says_so(cast: Cast, browse: Browse) -> None:
    make_session(cast.alice, session_type="batch", startup_command="false")
    ComputeSession.objects.update(status="TERMINATED", result="FAILED")
    recent = words(browse(cast.alice).get(reverse("web:dashboard"))).partition("Recent sessions")[2]
    assert "Failed" in recent
    assert "Terminated" not in recent, "the list of sessions says one word, too"
