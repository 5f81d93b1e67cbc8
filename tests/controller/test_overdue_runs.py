"""Sessions whose time is up, which they were told at their start."""

from __future__ import annotations

from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest

from backendai.base.db.bulk import among
from backendai.base.wire.messages import KernelState
from backendai.domain.accounts.models import ResourcePolicy
from backendai.domain.compute.models import ComputeSession
from backendai.domain.compute.services.life.end_times import set_end
from backendai.domain.compute.services.life.reports import kernel_reported
from backendai.domain.compute.status import Status
from backendai.portal.loops.repair import overdue_runs
from tests.cast import Cast
from tests.controller.clocks import later, only_kernel, repair_at, rows
from tests.factories import make_agent, make_running_session, make_session, place, report_of

pytestmark = [pytest.mark.django_db, pytest.mark.postgres]


def policy(name: str, **lifetime: float) -> ResourcePolicy:
    return ResourcePolicy.objects.create(name=name, max_session_lifetime=timedelta(**lifetime))


def test_a_batch_program_over_its_time_ends_as_failed(cast: Cast) -> None:
    agent = make_agent()
    session = make_session(cast.alice, session_type="batch", startup_command="sleep 1000")
    ComputeSession.objects.update(batch_timeout=timedelta(minutes=10))
    place(session, agent)
    kernel_reported(agent, report_of(only_kernel(session), KernelState.RUNNING))
    session.refresh_from_db()
    assert session.ends_at == session.started_at + timedelta(minutes=10)
    repair_at(later(minutes=9))
    session.refresh_from_db()
    assert session.status == Status.RUNNING
    repair_at(later(minutes=11))
    session.refresh_from_db()
    assert (session.status, session.status_reason, session.result) == (Status.TERMINATING, "task-timeout", "FAILED")
    assert session.status_message == "The batch program did not end within 10 min, its time limit."
    assert session.status_data["allowed_seconds"] == 600
    assert rows(session)[-1] == ("run", "EXPIRED", "task-timeout", 1)
    kernel_reported(agent, report_of(only_kernel(session), KernelState.TERMINATED, exit_code=137))
    session.refresh_from_db()
    assert (session.status, session.result) == (Status.TERMINATED, "FAILED")


def test_the_smallest_lifetime_of_key_pair_user_project_and_domain_counts(cast: Cast) -> None:
    holders = [cast.alice.key_pairs.first(), cast.alice, cast.project, cast.project.domain]
    for number, holder in enumerate(holders):
        holder.policy = policy(f"p{number}", hours=8)
        holder.save()
    for number, holder in enumerate(holders):
        ResourcePolicy.objects.filter(pk=holder.policy_id).update(max_session_lifetime=timedelta(hours=4 - number))
        session = make_running_session(cast.alice)
        assert session.ends_at == session.started_at + timedelta(hours=4 - number)
    repair_at(later(hours=1, minutes=30))
    session.refresh_from_db()
    assert (session.status, session.status_reason, session.result) == (
        Status.TERMINATING,
        "session-lifetime",
        "UNDEFINED",
    )
    assert "1 h" in session.status_message
    assert ComputeSession.objects.running().count() == 3


def test_without_a_limit_it_runs_for_as_long_as_it_likes(cast: Cast) -> None:
    session = make_running_session(cast.alice)
    assert session.ends_at is None
    repair_at(later(days=900))
    session.refresh_from_db()
    assert session.status == Status.RUNNING


def test_a_limit_set_later_does_not_surprise_what_runs(cast: Cast) -> None:
    session = make_running_session(cast.alice)
    cast.alice.policy = policy("strict", minutes=1)
    cast.alice.save()
    repair_at(later(hours=2))
    session.refresh_from_db()
    assert session.status == Status.RUNNING


def test_a_moved_end_replaces_the_first_one(cast: Cast) -> None:
    batch, unlimited = (
        make_running_session(
            cast.alice, session_type="batch", startup_command="sleep 1000", batch_timeout=timedelta(minutes=10)
        )
        for _ in range(2)
    )
    interactive = make_running_session(cast.alice)
    ComputeSession.objects.update(started_at=(began := later()))  # however long it took to make them
    for session in (batch, unlimited, interactive):
        session.refresh_from_db()
        set_end(session, cast.alice, None if session == unlimited else began + timedelta(minutes=30), now=began)
    repair_at(began + timedelta(minutes=29))
    assert ComputeSession.objects.running().count() == 3
    repair_at(began + timedelta(minutes=31))
    for session in (batch, unlimited, interactive):
        session.refresh_from_db()
    assert (batch.status_reason, batch.result) == ("task-timeout", "FAILED")
    assert "within 30 min, its time limit" in batch.status_message
    assert (interactive.status_reason, interactive.result) == ("session-lifetime", "UNDEFINED")
    assert interactive.status_message == "It has run for 30 min, until the end that was set for it."
    repair_at(began + timedelta(days=30))
    unlimited.refresh_from_db()
    assert unlimited.status == Status.RUNNING


def test_an_end_moved_in_the_last_moment_holds(cast: Cast, monkeypatch: pytest.MonkeyPatch) -> None:
    session = make_running_session(
        cast.alice, session_type="batch", startup_command="sleep 1000", batch_timeout=timedelta(minutes=10)
    )
    moment = later(minutes=11)

    def move_first(ids: list[UUID]) -> Any:
        set_end(session, cast.alice, moment + timedelta(hours=1), now=moment)
        return among(ids)

    monkeypatch.setattr(overdue_runs, "among", move_first)
    assert overdue_runs.end_runs(moment) == 0
    session.refresh_from_db()
    assert session.status == Status.RUNNING
    monkeypatch.undo()
    assert overdue_runs.end_runs(moment + timedelta(hours=2)) == 1
