"""Logs, history and audit entries go after their time, logs of an owner with too many bytes go oldest first."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.db import connection
from django.test import override_settings
from django.test.utils import CaptureQueriesContext

from backendai.domain.accounts.models import User
from backendai.domain.activity.models import AuditEntry
from backendai.domain.activity.services import delete_old_audit
from backendai.domain.compute.models import ComputeSession, Kernel, KernelLog, SchedulingRecord
from backendai.domain.compute.services.records import retention
from backendai.domain.compute.services.records.retention import (
    delete_logs_beyond_share,
    delete_old_history,
    delete_old_logs,
)
from backendai.domain.compute.status import Status
from backendai.ops.checks import check_retention
from backendai.portal.loops.repair import observe
from backendai.portal.loops.repair import retention as rules
from tests.cast import Cast
from tests.factories import make_session, make_sessions

pytestmark = [pytest.mark.django_db, pytest.mark.postgres]
NOW = datetime(2036, 3, 10, 12, 0, tzinfo=UTC)
DAY = timedelta(days=1)


def end(sessions: list[ComputeSession], ago: timedelta) -> None:
    keys = [session.pk for session in sessions]
    Kernel.objects.filter(session__in=keys).update(status=Status.TERMINATED, ended_at=NOW - ago)
    ComputeSession.objects.filter(pk__in=keys).update(status=Status.TERMINATED, ended_at=NOW - ago)


def save_log(session: ComputeSession, ago: timedelta, size: int = 10) -> KernelLog:
    return KernelLog.objects.create(kernel=session.kernels.get(), content=b"x", size=size, saved_at=NOW - ago)


def ended(owner: User, number: int, ago: timedelta = DAY) -> list[ComputeSession]:
    sessions = make_sessions(owner, number)
    end(sessions, ago)
    return sessions


def kept() -> set[Any]:
    return set(KernelLog.objects.values_list("kernel__session", flat=True))


@override_settings(KEEP_LOGS=90 * DAY)
def test_logs_go_after_their_time_but_those_of_live_sessions_stay(cast: Cast) -> None:
    old, new = ended(cast.alice, 2)
    live = make_session(cast.alice)
    for session, days in ((old, 91), (new, 89), (live, 200)):
        save_log(session, days * DAY)
    assert delete_old_logs(NOW) == 1
    assert kept() == {new.pk, live.pk}
    assert delete_old_logs(NOW + 10 * DAY) == 1
    assert kept() == {live.pk}


def test_zero_keeps_all(cast: Cast) -> None:
    (session,) = ended(cast.alice, 1, 5000 * DAY)
    save_log(session, 5000 * DAY, size=2**30)
    AuditEntry.objects.create(at=NOW - 5000 * DAY, action="a", target_type="t", target_id="1")
    before = SchedulingRecord.objects.count(), AuditEntry.objects.count()
    zero = timedelta(0)
    with override_settings(KEEP_LOGS=zero, KEEP_HISTORY=zero, KEEP_AUDIT=zero, LOG_BYTES_PER_OWNER=0):
        assert rules.delete_expired(NOW) == 0
    assert (SchedulingRecord.objects.count(), AuditEntry.objects.count()) == before
    assert kept() == {session.pk}


@override_settings(LOG_BYTES_PER_OWNER=100)
def test_of_too_many_bytes_the_oldest_logs_of_this_owner_go(cast: Cast) -> None:
    first, second, third, fourth = ended(cast.alice, 4)
    live, (others,) = make_session(cast.alice), ended(cast.bob, 1)
    save_log(third, 1 * DAY, size=40)
    save_log(first, 3 * DAY, size=60)
    save_log(fourth, 1 * DAY, size=20)
    save_log(second, 2 * DAY, size=40)
    save_log(live, 9 * DAY, size=500)
    save_log(others, 50 * DAY, size=100)
    assert delete_logs_beyond_share(NOW) == 1
    assert kept() == {second.pk, third.pk, fourth.pk, live.pk, others.pk}
    assert delete_logs_beyond_share(NOW) == 0


@override_settings(KEEP_HISTORY=365 * DAY)
def test_the_history_goes_so_long_after_the_end_and_the_session_stays(cast: Cast) -> None:
    old, new = ended(cast.alice, 1, 366 * DAY), ended(cast.alice, 1, 364 * DAY)
    live = make_session(cast.alice)
    SchedulingRecord.objects.update(created_at=NOW - 1000 * DAY, updated_at=NOW - 1000 * DAY)
    before = SchedulingRecord.objects.filter(session=old[0]).count()
    assert before > 0
    assert delete_old_history(NOW) == before
    assert set(SchedulingRecord.objects.values_list("session", flat=True)) == {new[0].pk, live.pk}
    assert ComputeSession.objects.filter(pk=old[0].pk).exists()
    assert delete_old_history(NOW) == 0


@override_settings(KEEP_AUDIT=30 * DAY)
def test_audit_entries_go_where_the_site_says_so() -> None:
    for days in (29, 31):
        AuditEntry.objects.create(at=NOW - days * DAY, action=f"{days}", target_type="t", target_id="1")
    assert delete_old_audit(NOW) == 1
    assert [entry.action for entry in AuditEntry.objects.filter(target_type="t")] == ["29"]


@override_settings(KEEP_LOGS=90 * DAY, KEEP_HISTORY=90 * DAY, LOG_BYTES_PER_OWNER=100)
def test_one_pass_deletes_a_bounded_part_in_a_fixed_number_of_statements(
    cast: Cast, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(retention, "_MOST_LOGS", 4)
    monkeypatch.setattr(retention, "_LOGS_AT_ONCE", 2)
    monkeypatch.setattr(retention, "_MOST_SESSIONS", 4)
    counts = []
    for number in (12, 60):
        for session in ended(cast.alice, number, 100 * DAY):
            save_log(session, 100 * DAY, size=50)
        with CaptureQueriesContext(connection) as captured:
            deleted = [rule(NOW) for rule in (delete_old_logs, delete_logs_beyond_share)]
            delete_old_history(NOW)
        assert deleted == [4, 4]
        counts.append(len(captured))
    assert counts[0] == counts[1]


@override_settings(KEEP_AUDIT=30 * DAY)
def test_a_rule_that_fails_does_not_stop_the_others(cast: Cast, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(now: datetime) -> int:
        raise OSError("the disk is full")

    AuditEntry.objects.create(at=NOW - 31 * DAY, action="old", target_type="t", target_id="1")
    monkeypatch.setattr(rules, "RULES", (fails, delete_old_audit))
    observe.run_observe(NOW)
    assert not AuditEntry.objects.filter(action="old").exists()


@pytest.mark.parametrize(("share", "found"), [(0, []), (2**20, ["portal.E053"]), (2**30, [])])
def test_a_share_smaller_than_one_log_is_refused(share: int, found: list[str]) -> None:
    with override_settings(LOG_BYTES_PER_OWNER=share):
        assert [message.id for message in check_retention()] == found
