"""Limits of policies in whole passes: exactly as much runs as they allow, and the rest waits with the numbers."""

from __future__ import annotations

import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

import pytest
from django.db import connection
from django.utils import timezone

from backendai.base.wire.messages import KernelState
from backendai.domain.accounts.models import ResourcePolicy
from backendai.domain.compute.models import ComputeSession
from backendai.domain.compute.services.life.ending import end_sessions
from backendai.domain.compute.services.life.reports import kernel_reported
from backendai.domain.compute.services.status.moves import StatusCause
from backendai.domain.compute.status import PLACED, Phase, Status
from backendai.portal.loops.loops import schedule_group
from tests.cast import Cast, make_cast
from tests.effort import LONG
from tests.factories import make_agent, make_group, make_image, make_session, make_sessions, report_of

pytestmark = pytest.mark.postgres


@pytest.mark.django_db
def test_of_50_sessions_under_a_limit_of_5_exactly_5_start_and_45_wait_with_the_reason(cast: Cast) -> None:
    cast.alice.policy = ResourcePolicy.objects.create(name="five", max_sessions=5)
    cast.alice.save()
    group, agent = make_group(), make_agent(cpu=128, mem="256g")
    make_sessions(cast.alice, 50)
    bobs = make_session(cast.bob)
    now = timezone.now()
    assert schedule_group(group.pk, now) == 6, "five of Alice's and one of Bob's"
    assert schedule_group(group.pk, now + timedelta(seconds=2)) == 0
    alices = ComputeSession.objects.filter(owner=cast.alice)
    assert Counter(alices.values_list("status", flat=True)) == {Status.SCHEDULED: 5, Status.PENDING: 45}
    waiting = alices.filter(status=Status.PENDING)
    assert set(waiting.values_list("status_reason", flat=True)) == {"too-many-sessions"}
    text = waiting.values_list("status_message", flat=True)[0]
    assert "alice@example.com has 5 of at most 5 sessions" in text
    bobs.refresh_from_db()
    assert bobs.status == Status.SCHEDULED

    first = alices.filter(status=Status.SCHEDULED).order_by("created_at")[0]
    end_sessions([first.pk], StatusCause(Phase.TERMINATE, "user-requested"), now=now)
    assert schedule_group(group.pk, now + timedelta(seconds=4)) == 0, "it holds its slots until its node has said so"
    kernel_reported(agent, report_of(first.kernels.get(), KernelState.TERMINATED), now=now)
    assert schedule_group(group.pk, now + timedelta(seconds=6)) == 1
    assert alices.filter(status__in=PLACED).count() == 5


@pytest.mark.django_db
def test_slots_of_a_project_are_limited_over_all_its_people_and_groups(cast: Cast) -> None:
    cast.project.policy = ResourcePolicy.objects.create(name="six", slots={"cpu": 6})
    cast.project.save()
    groups = [make_group(name) for name in ("east", "west")]
    for group in groups:
        make_agent(cpu=64, mem="64g", group=group)
        for owner in (cast.alice, cast.bob):
            for _ in range(3):
                make_session(owner, resource_group=group.name, resources={"cpu": 2, "mem": "512m"})
    assert [schedule_group(group.pk, timezone.now()) for group in groups] == [3, 0]
    reasons = ComputeSession.objects.pending().values_list("status_reason", flat=True)
    assert set(reasons) == {"slot-limit"} and len(reasons) == 9


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("attempt", range(3 if LONG else 1))
def test_two_groups_that_are_scheduled_at_once_keep_one_limit_between_them(attempt: int) -> None:
    cast = make_cast()
    make_image()
    cast.alice.policy = ResourcePolicy.objects.create(name="five", max_sessions=5)
    cast.alice.save()
    groups = [make_group(name) for name in ("east", "west")]
    for group in groups:
        make_agent(cpu=64, mem="64g", group=group)
        for _ in range(8):
            make_session(cast.alice, resource_group=group.name)
    barrier = threading.Barrier(len(groups))

    def schedule(group_id: int) -> int:
        try:
            barrier.wait(60)
            return schedule_group(group_id, timezone.now())
        finally:
            connection.close()

    with ThreadPoolExecutor(len(groups)) as pool:
        placed = sum(pool.map(schedule, [group.pk for group in groups]))
    assert placed == 5
    assert ComputeSession.objects.filter(status__in=PLACED).count() == 5
