"""Pending sessions that have waited long enough."""

from __future__ import annotations

from datetime import timedelta
from itertools import pairwise
from typing import Any

import pytest
from django.utils import timezone

from backendai.base.wire.messages import KernelState
from backendai.domain.accounts.sign_in.revocation import set_active
from backendai.domain.cluster.models import ResourceGroup
from backendai.domain.compute.auditing import World
from backendai.domain.compute.models import ComputeSession, SchedulingRecord
from backendai.domain.compute.services.launching.priorities import set_priority
from backendai.domain.compute.services.launching.renaming import rename_session
from backendai.domain.compute.services.life.ending import Ended, end_each, terminate_session
from backendai.domain.compute.services.life.reports import kernel_reported
from backendai.domain.compute.services.placing.waits import Waiting, note_waits
from backendai.domain.compute.status import Status
from backendai.ops.management.commands.audit import run_checks
from backendai.portal.loops.repair import overdue_waits
from tests.cast import Cast
from tests.controller.clocks import later, message_of, only_kernel, repair_at, rows
from tests.factories import make_agent, make_group, make_running_session, make_session, place, report_of

pytestmark = pytest.mark.django_db
GAVE_UP = ("schedule", "GIVE_UP", "gave-up-scheduling", 1)


def tried(session: ComputeSession, times: int) -> None:
    """The scheduler tries so often, in vain."""
    for _ in range(times):
        note_waits([Waiting(session.pk, "no-room", "cpu: 8 asked, 2 free.")], now=timezone.now())
    session.refresh_from_db()


def test_a_session_that_waits_too_long_is_cancelled_with_the_numbers(cast: Cast) -> None:
    make_group(pending_timeout=timedelta(hours=1))
    session = make_session(cast.alice)
    tried(session, 3)
    repair_at(later(minutes=59))
    assert ComputeSession.objects.pending().exists()
    repair_at(later(minutes=61))
    session.refresh_from_db()
    assert (session.status, session.status_reason) == (Status.CANCELLED, "pending-timeout")
    assert "Pending for 1 h 1 min" in session.status_message
    assert "allows 1 h. Scheduling was attempted 3 times. cpu: 8 asked" in session.status_message
    assert (session.status_data["limit_seconds"], session.status_data["attempts"]) == (3600, 3)
    assert rows(session)[-1] == ("sweep", "EXPIRED", "pending-timeout", 1)
    assert only_kernel(session).status == Status.CANCELLED


def test_the_wait_of_somebody_who_is_deactivated_ends_and_nobody_elses(cast: Cast) -> None:
    session, other = make_session(cast.alice), make_session(cast.bob)
    set_active(cast.dana.pk, cast.alice, False, now=timezone.now())
    repair_at(later(minutes=1))
    session.refresh_from_db()
    other.refresh_from_db()
    assert (session.status, session.status_reason) == (Status.CANCELLED, "owner-inactive")
    assert rows(session)[-1] == ("sweep", "EXPIRED", "owner-inactive", 1)
    assert other.status == Status.PENDING


def test_a_new_name_or_priority_does_not_begin_the_wait_anew(cast: Cast) -> None:
    make_group(pending_timeout=timedelta(hours=1))
    session = make_session(cast.alice)
    began = later(hours=-2)
    ComputeSession.objects.filter(pk=session.pk).update(created_at=began, changed_at=began)
    rename_session(session, cast.alice, "another-name")
    set_priority(session, cast.alice, 3)
    assert overdue_waits.sweep_pending(timezone.now()) == 1


def test_time_in_which_it_could_not_start_is_no_waiting(cast: Cast) -> None:
    make_group(pending_timeout=timedelta(hours=1))
    agent, again = make_agent(), make_session(cast.alice, name="again")
    first = make_session(cast.alice, name="first", session_type="batch", startup_command="true")
    after = make_session(cast.alice, session_type="batch", startup_command="true", depends_on=["first"])
    place(first, agent)
    place(again, agent)
    failed = report_of(only_kernel(again), KernelState.TERMINATED, reason="failed-to-start")
    kernel_reported(agent, failed, now=later(minutes=50))
    assert overdue_waits.sweep_pending(later(minutes=70)) == 0
    kernel_reported(agent, report_of(only_kernel(first), KernelState.RUNNING), now=later(minutes=71))
    ended = report_of(only_kernel(first), KernelState.TERMINATED, reason="exited", exit_code=0)
    kernel_reported(agent, ended, now=later(minutes=80))
    overdue_waits.sweep_pending(later(minutes=115))
    assert list(ComputeSession.objects.pending()) == [after]
    overdue_waits.sweep_pending(later(minutes=141))
    after.refresh_from_db()
    assert (after.status, after.status_data["waited_seconds"] // 60) == (Status.CANCELLED, 61)


def test_a_session_that_gets_its_place_meanwhile_is_left_alone(cast: Cast, monkeypatch: pytest.MonkeyPatch) -> None:
    make_group(pending_timeout=timedelta(hours=1))
    agent, session = make_agent(), make_session(cast.alice)

    def too_late(whys: Any, **rest: Any) -> Ended:
        if whys:
            place(session, agent)
        return end_each(whys, **rest)

    monkeypatch.setattr(overdue_waits, "end_each", too_late)
    assert overdue_waits.sweep_pending(later(hours=2)) == 0
    session.refresh_from_db()
    assert session.status == Status.SCHEDULED


def test_the_time_before_a_session_may_start_is_no_waiting(cast: Cast) -> None:
    make_group(pending_timeout=timedelta(hours=1))
    session = make_session(
        cast.alice, session_type="batch", startup_command="true", starts_at=timezone.now() + timedelta(hours=5)
    )
    repair_at(later(hours=5, minutes=59))
    assert ComputeSession.objects.pending().exists()
    repair_at(later(hours=6, minutes=1))
    session.refresh_from_db()
    assert session.status == Status.CANCELLED
    assert "Pending for 1 h 1 min" in session.status_message


def test_without_a_timeout_a_session_waits_for_ever(cast: Cast) -> None:
    make_session(cast.alice)
    repair_at(later(days=5000))
    assert ComputeSession.objects.pending().count() == 1


def test_giving_up_is_said_once_and_the_tries_go_on(cast: Cast) -> None:
    make_group(give_up_after=3)
    session = make_session(cast.alice)
    tried(session, 2)
    repair_at(later(seconds=5))
    assert GAVE_UP not in rows(session)
    tried(session, 1)
    repair_at(later(seconds=5))
    tried(session, 4)
    repair_at(later(seconds=9))
    assert rows(session).count(GAVE_UP) == 1
    assert "attempted 3 times (resource group default gives up after 3)" in message_of(session, "gave-up-scheduling")
    session.refresh_from_db()
    assert (session.status, session.attempts, session.priority) == (Status.PENDING, 7, 10)
    assert run_checks(World(later())) == {}


def test_giving_up_is_said_again_after_a_start_that_failed(cast: Cast) -> None:
    make_group(give_up_after=1)
    agent, session = make_agent(), make_session(cast.alice)
    tried(session, 1)
    repair_at(timezone.now())
    place(session, agent)
    kernel_reported(agent, report_of(only_kernel(session), KernelState.TERMINATED, reason="failed-to-start"))
    tried(session, 1)
    repair_at(later(seconds=5))
    assert rows(session).count(GAVE_UP) == 2


def test_giving_up_lowers_the_priority_to_nothing_less_than_zero_and_shows_both_numbers(cast: Cast) -> None:
    make_group(give_up_after=2, on_give_up=ResourceGroup.GiveUp.LOWER)
    session = make_session(cast.alice)
    ComputeSession.objects.update(priority=15)
    seen = []
    for _ in range(4):
        tried(session, 2)
        repair_at(later(seconds=5))
        session.refresh_from_db()
        seen.append((session.priority, session.attempts))
    assert seen == [(5, 0), (0, 0), (0, 2), (0, 4)]
    lowered = SchedulingRecord.objects.filter(error_code="priority-lowered").order_by("id")
    texts = list(lowered.values_list("message", flat=True))
    assert ["goes from 15 to 5" in texts[0], "goes from 5 to 0" in texts[1], len(texts)] == [True, True, 2]
    assert rows(session).count(GAVE_UP) == 1


def test_giving_up_may_cancel(cast: Cast) -> None:
    make_group(give_up_after=2, on_give_up=ResourceGroup.GiveUp.CANCEL)
    session = make_session(cast.alice)
    tried(session, 2)
    repair_at(later(seconds=5))
    session.refresh_from_db()
    assert (session.status, session.status_reason) == (Status.CANCELLED, "gave-up-scheduling")
    assert "attempted 2 times" in session.status_message
    assert rows(session)[-1] == GAVE_UP


def chain(cast: Cast, first: ComputeSession, length: int) -> list[ComputeSession]:
    sessions = [first]
    for number in range(length):
        one = make_session(cast.alice, session_type="batch", startup_command="true", name=f"link-{number}")
        one.depends_on.add(sessions[-1])
        sessions.append(one)
    return sessions


def test_a_chain_of_dependents_ends_at_once_with_the_failed_one(cast: Cast) -> None:
    agent = make_agent()
    first = make_running_session(cast.alice, agent, session_type="batch", startup_command="false", name="prepare")
    sessions = chain(cast, first, 3)
    kernel_reported(agent, report_of(only_kernel(first), KernelState.TERMINATED, reason="exited", exit_code=1))
    for before, one in pairwise(sessions):
        one.refresh_from_db()
        assert (one.status, one.status_reason) == (Status.CANCELLED, "dependency-failed")
        assert before.name in one.status_message
        assert one.status_data["dependency"] == str(before.pk)
        assert rows(one)[-1] == ("schedule", "GIVE_UP", "dependency-failed", 1)
    assert "(task-failed)" in sessions[1].status_message


def test_dependents_of_a_success_go_on_waiting_for_room(cast: Cast) -> None:
    agent = make_agent()
    first = make_running_session(cast.alice, agent, session_type="batch", startup_command="true")
    _, dependent = chain(cast, first, 1)
    kernel_reported(agent, report_of(only_kernel(first), KernelState.TERMINATED, reason="exited", exit_code=0))
    repair_at(later(seconds=5))
    dependent.refresh_from_db()
    assert dependent.status == Status.PENDING


def test_cancelling_a_pending_session_cancels_what_depends_on_it(cast: Cast) -> None:
    first, *rest = chain(cast, make_session(cast.alice, session_type="batch", startup_command="true", name="first"), 2)
    terminate_session(first, cast.alice)
    assert {ComputeSession.objects.get(pk=one.pk).status for one in rest} == {Status.CANCELLED}


def test_the_repair_pass_finds_dependents_that_were_missed(cast: Cast) -> None:
    first = make_session(cast.alice)
    terminate_session(first, cast.alice)
    _, *rest = chain(cast, first, 2)
    repair_at(later(seconds=5))
    assert {ComputeSession.objects.get(pk=one.pk).status_reason for one in rest} == {"dependency-failed"}
