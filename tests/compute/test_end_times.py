"""The end of a running session is moved: by whom, how far, and what follows from it."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from django.test import Client
from django.utils import timezone

from backendai.base.core.errors import Conflict, NotAllowed, UserError
from backendai.base.wire.messages import KernelState
from backendai.domain.accounts.models import ResourcePolicy, User
from backendai.domain.activity.models import AuditEntry
from backendai.domain.compute.models import ComputeSession, SchedulingRecord, SessionNotice
from backendai.domain.compute.services.life.end_times import latest_end, set_end
from backendai.domain.compute.services.life.ending import terminate_session
from backendai.domain.compute.services.life.reports import kernel_reported
from backendai.domain.compute.services.notices import owners as notices
from backendai.domain.compute.status import Status
from backendai.domain.planning.snapshot import read_running
from tests.cast import Cast
from tests.factories import make_agent, make_group, make_running_session, place, report_of

pytestmark = [pytest.mark.django_db, pytest.mark.postgres]
HOUR = timedelta(hours=1)


@pytest.fixture
def now() -> datetime:
    return timezone.now()


def limited_session(cast: Cast, hours: int = 8) -> ComputeSession:
    """Return a running session of Alice, whose policy limits its run."""
    cast.alice.policy = ResourcePolicy.objects.create(name="day", max_session_lifetime=hours * HOUR)
    cast.alice.save()
    return make_running_session(cast.alice)


def batch_session(cast: Cast) -> ComputeSession:
    """Return a running batch session of Alice with a timeout of an hour."""
    return make_running_session(
        cast.alice, session_type="batch", startup_command="sleep 1000", batch_timeout=HOUR, retry_on_agent_loss=True
    )


def domain_admin(cast: Cast, domain: object) -> User:
    return User.objects.create(email="admin@example.com", domain=domain, role=User.Role.ADMIN)


def end_of(session: ComputeSession) -> datetime | None:
    session.refresh_from_db()
    return session.ends_at


def test_the_owner_moves_the_end_of_a_batch_session_later_and_earlier(cast: Cast, now: datetime) -> None:
    session = batch_session(cast)
    first = session.ends_at
    for until in (now + 30 * HOUR, now + timedelta(minutes=5)):
        set_end(session, cast.alice, until, now=now)
        assert end_of(session) == until
    set_end(session, cast.alice, None, now=now)
    assert end_of(session) is None and session.is_end_moved
    entry = AuditEntry.objects.filter(action="session.set-end").order_by("pk").first()
    assert entry is not None and first is not None
    assert entry.details["changes"] == {"ends_at": [first.isoformat(), (now + 30 * HOUR).isoformat()]}
    message = SchedulingRecord.objects.filter(error_code="end-moved").order_by("pk").first().message
    assert message == (
        f"alice@example.com moved the end from {first:%Y-%m-%d %H:%M:%S} UTC "
        f"to {now + 30 * HOUR:%Y-%m-%d %H:%M:%S} UTC."
    )


def test_a_policy_limits_the_owner_from_the_start_and_no_administrator(cast: Cast, now: datetime) -> None:
    session = limited_session(cast)
    longest = session.started_at + 8 * HOUR
    assert latest_end(session, cast.alice) == longest == session.ends_at
    for until in (longest + timedelta(seconds=1), None):
        with pytest.raises(UserError) as refused:
            set_end(session, cast.alice, until, now=now)
        assert (refused.value.code, refused.value.field) == ("end-too-late", "ends_at")
        assert refused.value.details["limit"] == longest.isoformat()
    set_end(session, cast.alice, now + HOUR, now=now)
    set_end(session, cast.alice, longest, now=now)
    for admin in (cast.dana, domain_admin(cast, cast.project.domain)):
        set_end(session, admin, None, now=now)
        set_end(session, admin, longest + 50 * HOUR, now=now)
    entry = AuditEntry.objects.filter(action="session.set-end").latest("pk")
    assert (entry.details["actor"], entry.details["owner"]) == ("admin@example.com", "alice@example.com")
    set_end(session, cast.alice, longest + 40 * HOUR, now=now)
    assert end_of(session) == longest + 40 * HOUR, "later than the policy allows, but earlier than it was"
    with pytest.raises(UserError):
        set_end(session, cast.alice, longest + 41 * HOUR, now=now)


def test_nobody_else_moves_it(cast: Cast, now: datetime) -> None:
    session = limited_session(cast)
    for stranger in (cast.bob, cast.charlie, domain_admin(cast, cast.elsewhere.domain)):
        with pytest.raises(NotAllowed):
            set_end(session, stranger, now + HOUR, now=now)
    assert not AuditEntry.objects.filter(action="session.set-end").exists()


@pytest.mark.parametrize("ahead", [timedelta(days=-1), timedelta(seconds=59), timedelta(days=3651)])
def test_an_end_that_is_too_near_or_too_far_is_rejected(cast: Cast, now: datetime, ahead: timedelta) -> None:
    session = batch_session(cast)
    before = session.ends_at
    with pytest.raises(UserError, match="at least 60 seconds and at most 3650 days") as refused:
        set_end(session, cast.dana, now + ahead, now=now)
    assert (refused.value.code, refused.value.field) == ("invalid-end", "ends_at")
    assert end_of(session) == before


def test_a_session_that_ended_meanwhile_is_a_conflict(cast: Cast, now: datetime) -> None:
    session = batch_session(cast)
    before = session.ends_at
    terminate_session(ComputeSession.objects.get(), cast.alice)
    with pytest.raises(Conflict) as refused:
        set_end(session, cast.alice, now + 3 * HOUR, now=now)
    assert refused.value.code == "not-running"
    assert end_of(session) == before


def test_a_later_end_withdraws_the_warning_and_is_announced_again(cast: Cast, now: datetime) -> None:
    session = batch_session(cast)
    soon = session.ends_at - timedelta(minutes=20)
    assert notices.warn_of_ends(soon) == 1
    set_end(session, cast.alice, soon + 3 * HOUR, now=soon)
    assert not SessionNotice.objects.filter(kind="ending").exists()
    assert notices.warn_of_ends(soon) == 0
    assert notices.warn_of_ends(soon + 2.5 * HOUR) == 1
    assert SessionNotice.objects.get(kind="ending").due_at == end_of(session)
    ComputeSession.objects.update(ends_at=soon + 4 * HOUR)  # moved while the warning was written
    assert notices.warn_of_ends(soon + 3.5 * HOUR) == 1


def test_the_warning_of_a_drain_stays(cast: Cast, now: datetime) -> None:
    session = batch_session(cast)
    notices.warn_owners({session.pk: "Its agent is being drained."}, now + HOUR, now=now)
    set_end(session, cast.alice, now + 3 * HOUR, now=now)
    assert SessionNotice.objects.get(kind="ending").due_at == now + HOUR
    assert notices.warn_of_ends(now + 2.5 * HOUR) == 0


def test_a_run_that_starts_again_has_its_own_end(cast: Cast, now: datetime) -> None:
    group, session = make_group(max_retries=2), batch_session(cast)
    set_end(session, cast.alice, None, now=now)
    assert [view.ends_at for view in read_running(group)] == [None]
    agent = session.kernels.get().agent
    kernel_reported(agent, report_of(session.kernels.get(), KernelState.TERMINATED, reason="agent-lost"))
    session.refresh_from_db()
    assert (session.status, session.ends_at, session.is_end_moved) == (Status.PENDING, None, False)
    again = make_agent()
    place(session, again)
    kernel_reported(again, report_of(session.kernels.get(), KernelState.RUNNING, container_id="again"))
    session.refresh_from_db()
    assert session.ends_at == session.started_at + HOUR


def test_it_answers_over_rest(cast: Cast, client: Client) -> None:
    session = limited_session(cast)
    address, until = f"/api/v1/sessions/{session.pk}/end-time/", timezone.now().replace(microsecond=0) + HOUR
    client.force_login(cast.alice)
    answer = client.post(address, {"ends_at": until.isoformat()}, content_type="application/json")
    assert answer.status_code == 200
    assert datetime.fromisoformat(answer.json()["ends_at"]) == until
    too_late = client.post(address, {"ends_at": None}, content_type="application/json")
    assert (too_late.status_code, too_late.json()["code"]) == (400, "end-too-late")
    far = datetime(9999, 12, 31, 23, 59, tzinfo=UTC).isoformat()
    assert client.post(address, {"ends_at": far}, content_type="application/json").status_code == 400
    assert client.post(address, {}, content_type="application/json").status_code == 400
    client.force_login(cast.dana)
    unlimited = client.post(address, {"ends_at": None}, content_type="application/json")
    assert (unlimited.status_code, unlimited.json()["ends_at"]) == (200, None)
    terminate_session(ComputeSession.objects.get(), cast.alice)
    late = client.post(address, {"ends_at": until.isoformat()}, content_type="application/json")
    assert (late.status_code, late.json()["code"]) == (409, "not-running")
