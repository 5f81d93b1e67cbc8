"""What the owner of a session is told, when, and how often."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.utils import timezone

from backendai.base.wire.messages import KernelState
from backendai.domain.accounts.models import User
from backendai.domain.compute.models import ComputeSession, SessionNotice
from backendai.domain.compute.services.life.draining import cancel_drain, start_drain
from backendai.domain.compute.services.life.ending import end_sessions, terminate_session
from backendai.domain.compute.services.life.reports import kernel_reported
from backendai.domain.compute.services.notices import owners as notices
from backendai.domain.compute.services.status.moves import StatusCause
from backendai.domain.compute.status import Phase
from backendai.portal.loops.repair.rounds import repair
from tests.cast import Cast
from tests.factories import make_agent, make_group, make_running_session, make_session, place, report_of

pytestmark = pytest.mark.django_db


def told(owner: User) -> list[tuple[str, str]]:
    """Return what the owner was told, by session, in the order of telling."""
    rows = SessionNotice.objects.filter(owner=owner).order_by("pk")
    return list(rows.values_list("session__name", "kind"))


def age(session: ComputeSession, **ago: int) -> None:
    ComputeSession.objects.filter(pk=session.pk).update(created_at=timezone.now() - timedelta(**ago))


def end_kernel(session: ComputeSession, reason: str, exit_code: int) -> None:
    kernel = session.kernels.select_related("agent").get()
    kernel_reported(kernel.agent, report_of(kernel, KernelState.TERMINATED, exit_code=exit_code, reason=reason))


def test_a_launch_is_told_without_being_news_under_the_bell(cast: Cast) -> None:
    make_session(cast.alice, name="mine")
    assert told(cast.alice) == [("mine", "launched")]
    assert not SessionNotice.objects.filter(owner=cast.alice, seen_at=None).exists()
    assert told(cast.bob) == []


def test_a_notification_stays_for_thirty_days(cast: Cast) -> None:
    now = timezone.now()
    for name, ago in (("young", timedelta(days=29, hours=23)), ("aged", timedelta(days=30, hours=1))):
        make_session(cast.alice, name=name)
        SessionNotice.objects.filter(session__name=name).update(created_at=now - ago)
    assert notices.delete_old_notices(now) == 1
    assert told(cast.alice) == [("young", "launched")]


def test_a_start_is_news_only_after_a_wait_and_once(cast: Cast) -> None:
    agent = make_agent()
    make_running_session(cast.alice, agent, name="at-once")
    waited = make_session(cast.alice, name="waited")
    age(waited, minutes=2)
    place(waited, agent)
    for _ in range(2):
        kernel_reported(agent, report_of(waited.kernels.get(), KernelState.RUNNING, container_id="c1"))
    assert told(cast.alice) == [("at-once", "launched"), ("waited", "launched"), ("waited", "started")]


@pytest.mark.parametrize(
    ("reason", "exit_code", "kinds"),
    [
        ("exited", 0, ["finished"]),
        ("exited", 1, ["failed"]),
        ("out-of-memory", 137, ["failed"]),
        ("container-missing", 0, ["failed"]),
    ],
)
def test_the_end_of_the_work_is_news_whether_it_failed_or_not(
    cast: Cast, reason: str, exit_code: int, kinds: list[str]
) -> None:
    session = make_running_session(cast.alice, name="work", session_type="batch", startup_command="true")
    end_kernel(session, reason, exit_code)
    session.refresh_from_db()
    assert session.is_terminal
    assert told(cast.alice) == [("work", kind) for kind in ["launched", *kinds]]


def test_an_end_is_news_when_its_owner_did_not_ask_for_it(cast: Cast) -> None:
    agent = make_agent(cpu=8)
    own, others, swept = (make_running_session(cast.alice, agent, name=name) for name in ("mine", "others", "swept"))
    terminate_session(own, cast.alice)
    terminate_session(others, cast.dana)
    why = StatusCause(Phase.RUN, "session-lifetime", "It has run for 2 h, the maximum lifetime of its policy.")
    end_sessions([swept.pk], why, now=timezone.now())
    waiting = make_session(cast.alice, name="waiting")
    end_sessions([waiting.pk], StatusCause(Phase.SWEEP, "pending-timeout", "Too long."), now=timezone.now())
    news = [line for line in told(cast.alice) if line[1] != "launched"]
    assert news == [("others", "ended"), ("swept", "ended"), ("waiting", "ended")]


def test_a_start_that_is_tried_again_is_no_failure_until_it_is_given_up(cast: Cast) -> None:
    make_group(max_retries=1)
    session = make_session(cast.alice, name="twice")
    for number in (1, 2):
        agent = make_agent()
        place(session, agent)
        failed = report_of(session.kernels.get(), KernelState.TERMINATED, reason="failed-to-start")
        kernel_reported(agent, failed)
        session.refresh_from_db()
        assert told(cast.alice)[1:] == ([] if number == 1 else [("twice", "failed")])
    assert session.status == "ERROR"


def test_the_owner_is_warned_once_before_the_end_that_a_policy_sets(cast: Cast) -> None:
    now = timezone.now()
    long, short, far = (make_running_session(cast.alice, name=name) for name in ("long", "short", "late"))
    for session, minutes_ago, ends in ((long, 10 * 60, 50), (short, 10, 50), (far, 10, 120)):
        at = {"started_at": now - timedelta(minutes=minutes_ago), "ends_at": now + timedelta(minutes=ends)}
        ComputeSession.objects.filter(pk=session.pk).update(**at)
    assert notices.warn_of_ends(now) == 1, "the short one has more than half of its time before it"
    assert notices.warn_of_ends(now) == 0
    assert notices.warn_of_ends(now + timedelta(minutes=25)) == 1
    assert [line for line in told(cast.alice) if line[1] == "ending"] == [("long", "ending"), ("short", "ending")]
    long.refresh_from_db()
    assert SessionNotice.objects.get(session=long, kind="ending").due_at == long.ends_at


def test_a_drain_warns_with_its_deadline_and_takes_it_back(cast: Cast) -> None:
    agent, now = make_agent(name="node-1"), timezone.now()
    session = make_running_session(cast.alice, agent)
    start_drain(cast.dana, agent, now=now)
    assert not SessionNotice.objects.filter(kind="ending").exists(), "without a deadline it goes on"
    for hours in (2, 3):
        start_drain(cast.dana, agent, now=now, ends_at=now + timedelta(hours=hours))
        notices.SESSIONS.see(cast.alice, now=now)
    warning = SessionNotice.objects.get(session=session, kind="ending")
    assert warning.due_at == now + timedelta(hours=3)
    assert "node-1 is being drained" in warning.message
    start_drain(cast.dana, agent, now=now, ends_at=now + timedelta(hours=1))
    assert SessionNotice.objects.get(kind="ending").seen_at is None, "a new deadline is news again"
    cancel_drain(cast.dana, agent)
    assert not SessionNotice.objects.filter(kind="ending").exists()


def test_what_is_old_or_too_much_is_forgotten(cast: Cast, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(notices, "MOST_KEPT", 3)
    monkeypatch.setattr(notices, "_SLACK", 1)
    now = timezone.now()
    for _ in range(5):
        make_session(cast.alice)
    for _ in range(4):
        make_session(cast.bob)
    newest = list(SessionNotice.objects.filter(owner=cast.alice).order_by("-pk").values_list("pk", flat=True)[:3])
    repair(now)
    assert list(SessionNotice.objects.filter(owner=cast.alice).values_list("pk", flat=True)) == newest
    assert SessionNotice.objects.filter(owner=cast.bob).count() == 4, "within the slack"
    repair(now + notices.KEPT_FOR + timedelta(hours=1))
    assert not SessionNotice.objects.exclude(kind="ended").exists()


def test_putting_away_concerns_ones_own_news_alone(cast: Cast) -> None:
    now = timezone.now()
    mine, theirs = make_session(cast.alice), make_session(cast.bob)
    assert notices.SESSIONS.close(cast.bob, now=now, session=mine) == 0
    assert notices.SESSIONS.close(cast.dana, now=now, session=mine) == 0, "not even an administrator's"
    assert notices.SESSIONS.clear(cast.bob, now=now) == 1
    left: Any = SessionNotice.objects.get(session=mine)
    assert (left.closed_at, left.cleared_at) == (None, None)
    assert SessionNotice.objects.get(session=theirs).cleared_at == now
