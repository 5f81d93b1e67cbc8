"""When a session would start that is only previewed: from what the last look ahead expects to be free."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from backendai.base.core.slots import Slots
from backendai.domain.compute.models import ComputeSession
from backendai.domain.compute.spec import SessionSpec
from backendai.domain.forecasts.foreseeing import forecast_group
from backendai.domain.forecasts.launches import ENDLESS, SEVERAL, TOO_FAR, forecast_launch
from backendai.domain.forecasts.models import FreeAhead, StartForecast
from backendai.domain.planning.explain import Explanation
from backendai.domain.planning.preview import preview
from backendai.portal.loops import forecasts
from backendai.portal.loops.group_pass import schedule
from backendai.scheduler.forecasts.rooms import Moment, Request, Room, first_fit, rooms_of, smaller_fit
from backendai.scheduler.forecasts.starts import foresee_starts
from tests.api.callers import LAUNCH, Caller
from tests.factories import make_agent, make_group, make_image, make_running_session, make_session
from tests.pages import markup
from tests.scheduler.test_forecasts import occupant
from tests.scheduler.worlds import NOW, a_session, a_snapshot, an_agent
from tests.web.conftest import HTMX

HOUR = timedelta(hours=1)
NOTHING = Slots()


def cpus(number: int) -> Slots:
    return Slots.parse({"cpu": number})


def moments(*free: int) -> list[Moment]:
    return [Moment(NOW + hour * HOUR, (Room("", cpus(number)),)) for hour, number in enumerate(free)]


def test_only_the_largest_rooms_of_agents_that_take_sessions_are_kept() -> None:
    free = [({"cpu": 4, "mem": 1}, {}), ({"cpu": 2, "mem": 1}, {}), ({"cpu": 1, "mem": 8}, {}),
            ({"cpu": 64, "mem": 64}, {"schedulable": False}), ({"cpu": 64, "mem": 64}, {"max_kernels": 0})]  # fmt: skip
    agents = [an_agent(f"node-{number}", has=has, **over) for number, (has, over) in enumerate(free)]
    assert {tuple(room.free.values()) for room in rooms_of(agents, {})} == {(4000, 1000), (1000, 8000)}


@pytest.mark.parametrize(
    ("free", "after", "found"),
    [
        ((4, 0, 4), 0, 2),  # what is free now was too small for the pass
        ((0, 4, 8), 0, 1),
        ((0, 4, 8), 1.5, 1.5),  # it stays free until something changes
        ((0, 4, 0, 0, 4), 2.5, 4),
        ((0, 1, 2), 0, None),
    ],
)
def test_a_launch_starts_when_its_amounts_are_first_free(free: Any, after: float, found: float | None) -> None:
    at = first_fit(moments(*free), Request(cpus(4), "", NOTHING), NOW, NOW + after * HOUR)
    assert at == (None if found is None else NOW + found * HOUR)


def test_half_of_the_amounts_may_start_earlier_and_less_is_not_proposed() -> None:
    ahead = moments(0, 3, 4, 8)
    assert smaller_fit(ahead, Request(cpus(8), "", NOTHING), NOW, NOW, NOW + 3 * HOUR) == (NOW + 2 * HOUR, cpus(4))
    assert smaller_fit(ahead, Request(cpus(8), "", cpus(5)), NOW, NOW, NOW + 3 * HOUR) is None
    assert smaller_fit(ahead, Request(cpus(8), "x86_64", NOTHING), NOW, NOW, NOW + 3 * HOUR) is None


def test_the_look_ahead_goes_on_to_the_last_end_though_nobody_waits_any_more() -> None:
    agent = an_agent(has={"cpu": 4}, used={"cpu": 4})
    ends = [occupant(a_session(f"s-{hour}", {"cpu": 2}), agent, hour * HOUR) for hour in (1, 3)]
    waiting = a_session("waiting", {"cpu": 1})
    found = foresee_starts(a_snapshot([agent], [waiting]), ends, lambda pk: 9 * HOUR, with_moments=True)
    hours = [(round((each.at - NOW) / HOUR), each.rooms[0].free["cpu"] // 1000) for each in found.moments]
    assert hours == [(0, 0), (1, 1), (3, 3), (10, 4)]
    assert not found.was_cut


def spec(**over: Any) -> SessionSpec:
    values = {
        "image": "python",
        "resources": {"cpu": 1, "mem": "512m"},
        "resource_group": "default",
        "name": "newcomer",
    }
    return SessionSpec(**{**values, **over})


@pytest.fixture
def full(cast: Any, db: Any) -> ComputeSession:
    """A session that holds two of the two cores, for two more hours."""
    running = make_running_session(cast.alice, make_agent("node-1", cpu=2), resources={"cpu": 2, "mem": "512m"})
    ComputeSession.objects.filter(pk=running.pk).update(ends_at=timezone.now() + 2 * HOUR)
    return running


def seen(user: Any, **over: Any) -> Explanation:
    return preview(user, spec(**over), now=timezone.now())


def hours_to(found: Any) -> float:
    return round((found.start.expected - timezone.now()) / HOUR, 1)


def test_a_preview_says_when_the_session_would_start_though_nobody_waits(cast: Any, full: Any) -> None:
    assert forecast_launch(seen(cast.bob)) is None, "nobody has looked ahead"
    forecasts._ready.clear()
    assert forecasts.run_forecasts(timezone.now()) == 0
    found = forecast_launch(seen(cast.bob))
    assert found is not None and hours_to(found) == 2
    assert found.start.early <= found.start.expected <= found.start.late <= found.start.latest
    assert not found.start.is_reliable and found.smaller is None
    FreeAhead.objects.update(looked_at=timezone.now() - HOUR)
    assert forecast_launch(seen(cast.bob)) is None, "an old look says nothing"


def test_it_comes_after_those_ahead_of_it_and_before_smaller_priorities(cast: Any, full: Any) -> None:
    group = make_group()
    for number in range(2):
        waiting = make_session(cast.alice, name=f"ahead-{number}", resources={"cpu": 2, "mem": "512m"})
        ComputeSession.objects.filter(pk=waiting.pk).update(batch_timeout=HOUR)
    schedule(group, timezone.now())
    forecast_group(group, timezone.now())
    last = forecast_launch(seen(cast.bob, resources={"cpu": 2, "mem": "512m"}))
    assert last is not None and 4 <= hours_to(last) < 4.3
    ComputeSession.objects.pending().update(priority=0)
    schedule(group, timezone.now())
    first = forecast_launch(seen(cast.bob, resources={"cpu": 2, "mem": "512m"}))
    assert first is not None and hours_to(first) == 2


def test_why_nothing_can_be_said_is_said(cast: Any, full: Any) -> None:
    ComputeSession.objects.update(ends_at=None)
    forecast_group(make_group(), timezone.now())
    found = forecast_launch(seen(cast.bob))
    assert found is not None
    assert (found.start.code, found.start.endless, found.start.expected) == (ENDLESS, 1, None)
    FreeAhead.objects.update(was_cut=True)
    assert forecast_launch(seen(cast.bob)).start.code == TOO_FAR  # type: ignore[union-attr]
    several = seen(cast.bob, cluster_size=2, cluster_mode="multi-node")
    assert forecast_launch(several).start.code == SEVERAL  # type: ignore[union-attr]


def test_the_form_and_rest_show_it_in_a_fixed_number_of_queries(
    cast: Any, full: Any, client: Client, django_assert_num_queries: Any
) -> None:
    make_image()
    client.force_login(cast.bob)
    values = {"image": "python", "session_type": "interactive", "project": str(cast.project.pk),
              "resource_group": "default", "preset": "", "cpu": "2", "mem": "512m"}  # fmt: skip

    def shown() -> str:
        return " ".join(markup(client.post(reverse("web:launch_preview"), values, **HTMX)).split())

    assert "probably starts" not in shown()
    small = make_running_session(cast.alice, make_agent("node-2", cpu=1), name="small")
    ComputeSession.objects.filter(pk=small.pk).update(ends_at=timezone.now() + HOUR)
    forecast_group(make_group(), timezone.now())
    page = shown()
    assert "It probably starts between" in page
    assert "With 1 CPU core instead of 2 it probably starts at about" in page and "Use these amounts" in page
    found = seen(cast.bob)
    with django_assert_num_queries(2):
        forecast_launch(found, least=NOTHING)
    body = Caller(cast.bob).post("/api/v1/session-preview/", LAUNCH).json()
    assert body["verdict"] == "waits" and body["forecast"]["early"] < body["forecast"]["late"]
    for number in range(3):
        make_session(cast.alice, name=f"more-{number}")
    schedule(make_group(), timezone.now())
    forecast_group(make_group(), timezone.now())
    found = seen(cast.bob)
    with django_assert_num_queries(3):  # behind others
        assert forecast_launch(found, least=NOTHING) is not None
    assert not StartForecast.objects.filter(session__owner=cast.bob).exists(), "a preview stores nothing"
