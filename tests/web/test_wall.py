"""The wall: what each may see of it, and what it costs."""

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
from backendai.domain.cluster.models import Agent
from backendai.domain.cluster.site import change_site
from backendai.domain.compute.models import ComputeSession, Kernel
from tests.cast import Cast
from tests.factories import make_agent, make_group, make_running_session, make_session
from tests.pages import markup
from tests.web.conftest import HTMX

pytestmark = pytest.mark.django_db
Browse = Callable[[User], Client]
GPU = {"cpu": 1, "mem": "64m", "cuda.device": "1"}


def make_gpu_agent(name: str, **used: float) -> Agent:
    """Return an agent with these devices and their use in per cent."""
    live = {"devices": {device: {"slot": "cuda.device", "util_pct": use} for device, use in used.items()}}
    capacity = {"cpu": "16", "mem": str(2**36), "cuda.device": str(len(used))}
    return make_agent(name, capacity=capacity, devices={"cuda.device": list(used)}, live=live)


def hold(owner: User, agent: Agent, device: str, **over: Any) -> ComputeSession:
    session = make_running_session(owner, agent, resources=GPU, **over)
    Kernel.objects.filter(session=session).update(devices={"cuda.device": {device: "1"}})
    return session


def table(client: Client) -> str:
    """Return the table of the wall as text."""
    page = markup(client.get(reverse("web:wall"), **HTMX)).partition('id="wall-table"')[2]
    return re.sub(r"\s+", " ", re.sub(r"<[^>]+>", " ", page))


def test_each_device_says_whether_it_works_and_for_whom(cast: Cast, browse: Browse) -> None:
    agent = make_gpu_agent("gpu-1", a=80, b=1, c=0, d=50, e=0)
    for device, owner in (("a", cast.alice), ("b", cast.bob), ("d", cast.alice)):
        hold(owner, agent, device, name=f"on-{device}")
    Kernel.objects.filter(session__name="on-d").update(status="CREATING")
    agent.live["devices"]["e"]["healthy"] = False
    agent.save()
    make_agent("plain", live={"cpu_pct": 30, "mem_used": 1, "mem_total": 2})
    shown = table(browse(cast.dana))
    assert "busy 80 %, idle 1 %, free, reserved 50 %, unhealthy" in shown
    assert f"{cast.alice.email} ( vision ) 2 {cast.bob.email} ( vision ) 1" in shown
    assert "CPU: free; Memory: free" in shown


def test_others_are_numbers_to_those_who_may_not_see_their_sessions(cast: Cast, browse: Browse) -> None:
    agent = make_gpu_agent("gpu-1", a=80, b=90)
    hold(cast.alice, agent, "a", name="of-alice")
    hold(cast.bob, agent, "b", name="of-bob")
    make_session(cast.bob, name="waits-of-bob")
    make_session(cast.alice, name="waits-of-alice")
    make_agent("secret-1", group=make_group("secret", is_public=False))
    page = markup(browse(cast.alice).get(reverse("web:wall")))
    assert "1 of others" in page and page.count("data-who") == 3, "two rectangles and a line of the table"
    assert "waits-of-alice" in page and "a session of somebody else" in page
    for hidden in (cast.bob.email, "of-bob", "secret", "gpu-1", str(agent.pk)):
        assert hidden not in page
    assert "secret-1" in table(browse(cast.dana))


def test_where_groups_are_hidden_only_ones_own_is_left(cast: Cast, browse: Browse) -> None:
    change_site(cast.dana, {"group_resources_visible": False}, now=timezone.now())
    make_gpu_agent("gpu-1", a=80)
    make_session(cast.bob)
    make_session(cast.alice, name="mine")
    page = markup(browse(cast.alice).get(reverse("web:wall")))
    assert "have hidden what resource groups hold" in page and "mine" in page
    for hidden in ("gpu-1", "somebody else", "Waits of the last hour"):
        assert hidden not in page
    assert "gpu-1" in table(browse(cast.dana))


def test_without_agents_it_says_what_to_do(cast: Cast, browse: Browse) -> None:
    shown = markup(browse(cast.dana).get(reverse("web:wall")))
    assert "No agent has joined yet" in shown and reverse("manage:join-token-new") in shown
    assert "Ask an administrator" in markup(browse(cast.alice).get(reverse("web:wall")))
    for nothing in ("Nobody waits", "Nothing was launched", "Nothing happened"):
        assert nothing in shown


def test_the_queue_stands_in_its_order_with_reasons_and_expected_starts(cast: Cast, browse: Browse) -> None:
    make_agent()
    for place, name in ((2, "second"), (1, "first")):
        session = make_session(cast.alice, name=name)
        until = (timezone.now() + timedelta(hours=2)).isoformat()
        ComputeSession.objects.filter(pk=session.pk).update(
            queue_position=place, status_reason="no-room", status_data={"until": until} if place == 1 else {}
        )
    page = markup(browse(cast.alice).get(reverse("web:wall")))
    queue = re.sub(r"\s+", " ", re.sub(r"<[^>]+>", " ", page.partition("Queue")[2].partition("</ol>")[0]))
    assert re.search(r"2 1 first Waiting for \w[\w ]+ · expected to start in 1 h 59 min 2 second Waiting", queue)


def test_it_asks_the_database_as_often_for_many_agents_as_for_one(
    cast: Cast, browse: Browse, django_assert_max_num_queries: Callable[..., Any]
) -> None:
    client = browse(cast.dana)
    counts = set()
    for number in (1, 5):
        for each in range(number):
            hold(cast.alice, make_gpu_agent(f"gpu-{number}-{each}", **{f"{number}-{each}": 80}), f"{number}-{each}")
            make_session(cast.bob)
        with django_assert_max_num_queries(18) as captured:
            assert client.get(reverse("web:wall"), **HTMX).status_code == 200
        counts.add(len(captured))
    assert len(counts) == 1
