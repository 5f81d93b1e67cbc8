"""Limits under many launches and placements at once, with real threads and real transactions."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from django.db import connection
from django.utils import timezone

from backendai.base.core.errors import Conflict
from backendai.base.wire.messages import KernelState
from backendai.domain.accounts.models import ResourcePolicy, User
from backendai.domain.activity.models import AuditEntry
from backendai.domain.cluster.models import Agent
from backendai.domain.compute.models import Allocation, ComputeSession, Kernel
from backendai.domain.compute.services.launching.create import create_session
from backendai.domain.compute.services.life.reports import kernel_reported
from backendai.domain.compute.services.placing.place import Assignment, place_sessions
from backendai.domain.compute.spec import SessionSpec
from backendai.domain.compute.status import PLACED, Status
from backendai.portal.loops.loops import schedule_group
from tests.cast import Cast, make_cast
from tests.effort import LONG
from tests.factories import make_agent, make_group, make_image, make_session, report_of

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.postgres]

CREATES, LIMIT = 50, 5
ROUNDS = [*range(2), *(pytest.param(number, marks=pytest.mark.long) for number in range(2, 20))]


@pytest.fixture
def people() -> Cast:
    make_group()
    make_image()
    return make_cast()


def at_once(*calls: Callable[[], Any]) -> list[Any]:
    """Run the calls in threads that begin together; return their answers in order."""
    barrier = threading.Barrier(len(calls))

    def run(call: Callable[[], Any]) -> Any:
        try:
            connection.ensure_connection()
            barrier.wait(60)
            return call()
        finally:
            connection.close()

    with ThreadPoolExecutor(len(calls)) as pool:
        return [future.result(120) for future in [pool.submit(run, call) for call in calls]]


def launch(owner: User, **over: Any) -> Callable[[], str]:
    """Return a launch as a call that answers with the code of its refusal, or ``accepted``."""
    spec = SessionSpec(**({"image": "python", "resources": {"cpu": 1, "mem": "512m"}} | over))

    def call() -> str:
        try:
            create_session(owner, spec)
        except Conflict as error:
            assert error.details["limit"] in (LIMIT, str(LIMIT))
            assert str(LIMIT) in error.message
            return f"{error.code} {error.details['scope']}"
        return "accepted"

    return call


@pytest.mark.parametrize("attempt", range(3 if LONG else 1))
def test_of_50_launches_at_once_exactly_as_many_wait_as_the_limit_allows(people: Cast, attempt: int) -> None:
    people.alice.policy = ResourcePolicy.objects.create(name="five", max_pending_sessions=LIMIT)
    people.alice.save()
    answers = Counter(at_once(*[launch(people.alice)] * CREATES))
    assert answers == {"accepted": LIMIT, "pending-limit user": CREATES - LIMIT}
    assert ComputeSession.objects.pending().count() == LIMIT
    assert Kernel.objects.count() == LIMIT
    assert AuditEntry.objects.filter(action="session.create").count() == LIMIT


@pytest.mark.parametrize("attempt", ROUNDS)
def test_of_50_launches_at_once_exactly_as_many_run_as_the_limit_allows_and_the_rest_say_why(
    people: Cast, attempt: int
) -> None:
    people.alice.policy = ResourcePolicy.objects.create(name="five", max_sessions=LIMIT)
    people.alice.save()
    group = make_group()
    agent = make_agent(cpu=128, mem="256g", group=group)
    assert Counter(at_once(*[launch(people.alice)] * CREATES)) == {"accepted": CREATES}
    at_once(*[lambda: schedule_group(group.pk, timezone.now())] * 2)
    schedule_group(group.pk, timezone.now())  # the second in the race may have left something
    for kernel in Kernel.objects.placed():
        kernel_reported(agent, report_of(kernel, KernelState.RUNNING, container_id=f"c{kernel.pk.hex[:8]}"))
    sessions = ComputeSession.objects.all()
    assert Counter(sessions.values_list("status", flat=True)) == {
        Status.RUNNING: LIMIT,
        Status.PENDING: CREATES - LIMIT,
    }
    said = Counter(sessions.pending().values_list("status_reason", "status_message"))
    why = f"User alice@example.com has {LIMIT} of at most {LIMIT} sessions at once."
    assert said == {("too-many-sessions", why): CREATES - LIMIT}
    assert Allocation.objects.filter(slot="cpu").count() == LIMIT


@pytest.mark.parametrize("limits", [{"max_pending_sessions": LIMIT}, {"max_pending_slots": {"cpu": LIMIT}}])
def test_people_who_share_a_project_share_its_limit_under_launches_at_once(people: Cast, limits: Any) -> None:
    people.project.policy = ResourcePolicy.objects.create(name="shared", **limits)
    people.project.save()
    people.alice.policy = ResourcePolicy.objects.create(name="own", max_pending_sessions=1000)
    people.alice.save()
    calls = [launch(owner) for owner in (people.alice, people.bob) for _ in range(10)]
    answers = Counter(at_once(*calls, *[launch(people.charlie)] * 3))
    assert answers == {"accepted": LIMIT + 3, "pending-limit project": 20 - LIMIT}


def test_launches_under_crossing_limits_neither_deadlock_nor_exceed_any(people: Cast) -> None:
    for number, holder in enumerate((people.project, people.project.domain, people.alice, people.bob)):
        limit = (8, 6, LIMIT, LIMIT)[number]
        holder.policy = ResourcePolicy.objects.create(name=f"p{number}", max_pending_sessions=limit)
        holder.save()
    people.project.domain.refresh_from_db()

    def attempt(owner: User) -> Callable[[], bool]:
        def call() -> bool:
            try:
                create_session(owner, SessionSpec(image="python", resources={"cpu": 1, "mem": "512m"}))
            except Conflict:
                return False
            return True

        return call

    assert sum(at_once(*[attempt(owner) for owner in (people.alice, people.bob) for _ in range(12)])) == 6
    pending = ComputeSession.objects.pending()
    assert pending.count() == 6
    assert max(pending.filter(owner=owner).count() for owner in (people.alice, people.bob)) <= LIMIT


def waiting_in(people: Cast, group: str, agent: Agent, number: int) -> list[Assignment]:
    """Return placements of so many new sessions of Alice on the agent of this group."""
    sessions = [make_session(people.alice, resource_group=group) for _ in range(number)]
    return [Assignment(session.pk, {kernel.pk: agent.pk for kernel in session.kernels.all()}) for session in sessions]


@pytest.mark.parametrize("attempt", range(3 if LONG else 1))
@pytest.mark.parametrize("limits", [{"max_sessions": LIMIT}, {"slots": {"cpu": LIMIT}}])
def test_two_groups_that_place_at_once_never_let_a_holder_exceed_its_limit(
    people: Cast, limits: dict[str, Any], attempt: int
) -> None:
    people.project.policy = ResourcePolicy.objects.create(name="five", **limits)
    people.project.save()
    groups = {name: make_group(name) for name in ("east", "west")}
    plans = {
        name: waiting_in(people, name, make_agent(cpu=64, mem="64g", group=group), 8) for name, group in groups.items()
    }

    def work(name: str) -> Callable[[], set[Any]]:
        return lambda: place_sessions(groups[name].pk, plans[name], now=timezone.now())

    placed = at_once(work("east"), work("west"))
    assert sum(map(len, placed)) == LIMIT
    assert ComputeSession.objects.filter(status__in=PLACED).count() == LIMIT
    assert Allocation.objects.filter(slot="cpu").count() == LIMIT
    assert ComputeSession.objects.pending().count() == 16 - LIMIT
