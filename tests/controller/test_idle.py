"""The pass that looks for idle sessions: warned first, ended later, never by surprise, and quickly however many."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import pytest
from django.utils import timezone

from backendai.base.core.errors import Conflict, NotFound
from backendai.base.wire.messages import KernelState
from backendai.base.wire.usage import KernelUsage, UsageReport
from backendai.celery import app
from backendai.domain.activity.models import AuditEntry
from backendai.domain.activity.notices import NoticeKind
from backendai.domain.cluster.idle.checkers import Places, delete_checker, write_checker
from backendai.domain.cluster.models import Agent, IdleChecker, Reachability
from backendai.domain.cluster.services import last_pass_at, take_lease
from backendai.domain.compute.auditing import World, run_checks
from backendai.domain.compute.models import (
    Allocation,
    ComputeSession,
    IdleWarning,
    ImageCommit,
    Kernel,
    SessionNotice,
    SessionTraffic,
)
from backendai.domain.compute.services.life.idle_extension import extend_idle
from backendai.domain.compute.services.life.reports import kernel_reported
from backendai.domain.compute.services.records.traffic import note_traffic
from backendai.domain.compute.status import Status
from backendai.domain.usage.samples import keep
from backendai.portal.loops import idle, tasks
from tests.cast import Cast
from tests.controller.clocks import only_kernel, passes_went_on_until, rows
from tests.factories import make_agent, make_running_session, report_of

pytestmark = [pytest.mark.django_db, pytest.mark.postgres]

MINUTE = timedelta(minutes=1)


def checker(name: str = "quiet", places: Places | None = None, **over: Any) -> IdleChecker:
    values = {"name": name, "limit": 60 * MINUTE, "warning": 10 * MINUTE} | over
    return write_checker(None, IdleChecker(), values, places or Places(is_site_wide=True))


@pytest.fixture
def session(cast: Cast) -> ComputeSession:
    checker()
    found = make_running_session(cast.alice, name="training")
    look(found, 0)
    return found


def look(session: ComputeSession, minutes: float) -> ComputeSession:
    """Let the pass look so many minutes after the start; nodes were heard all the time."""
    moment = session.started_at + minutes * MINUTE
    passes_went_on_until(moment)
    idle.run_idle(moment)
    assert run_checks(World(moment), ["I-02", "I-15"]) == {}
    session.refresh_from_db()
    return session


def notices(session: ComputeSession) -> list[str]:
    return list(SessionNotice.objects.filter(session=session, kind=NoticeKind.IDLE).values_list("message", flat=True))


def test_it_warns_the_owner_and_ends_at_the_deadline_with_the_numbers(session: ComputeSession) -> None:
    look(session, 49)
    assert notices(session) == [] and session.status == Status.RUNNING
    version = session.version
    look(session, 50)
    since = f"{session.started_at:%Y-%m-%d %H:%M:%S} UTC"
    text = f"Unused since {since}; idle checker quiet ends sessions after 1 h without use."
    assert notices(session) == [text]
    assert SessionNotice.objects.get(kind=NoticeKind.IDLE).due_at == session.started_at + 60 * MINUTE
    assert session.version > version
    look(session, 59.9)
    assert (session.status, notices(session)) == (Status.RUNNING, [text])
    look(session, 60)
    assert (session.status, session.status_reason) == (Status.TERMINATING, "idle-timeout")
    assert session.status_message == "No traffic for 1 h; idle checker quiet allows 1 h."
    assert session.status_data | {"measured_seconds": 3600, "limit_seconds": 3600, "checker": "quiet"} == (
        session.status_data
    )
    assert session.status_data["warned_at"] == (session.started_at + 50 * MINUTE).isoformat()
    assert rows(session)[-2:] == [("run", "SUCCESS", "idle-warned", 1), ("run", "EXPIRED", "idle-timeout", 1)]
    kernel = only_kernel(session)
    kernel_reported(kernel.agent, report_of(kernel, KernelState.TERMINATED, exit_code=137))
    session.refresh_from_db()
    assert session.status == Status.TERMINATED and not Allocation.objects.exists()
    assert SessionNotice.objects.filter(session=session, kind=NoticeKind.ENDED).exists()


def test_traffic_takes_the_warning_back(session: ComputeSession) -> None:
    look(session, 55)
    note_traffic({session.pk: session.started_at + 56 * MINUTE})
    look(session, 57)
    assert notices(session) == [] and not IdleWarning.objects.exists()
    assert rows(session)[-1] == ("run", "SKIPPED", "idle-warning-withdrawn", 1)
    look(session, 70)
    assert session.status == Status.RUNNING
    look(session, 106)
    assert len(notices(session)) == 1
    look(session, 116)
    assert session.status_reason == "idle-timeout"


def test_a_change_of_the_rules_warns_anew(session: ComputeSession) -> None:
    look(session, 50)
    write_checker(None, IdleChecker.objects.get(), {"warning": 20 * MINUTE})
    look(session, 60)
    assert session.status == Status.RUNNING
    assert IdleWarning.objects.get().due_at == session.started_at + 80 * MINUTE
    look(session, 80)
    assert session.status_reason == "idle-timeout"


@pytest.mark.parametrize("action", ["off", "elsewhere", "deleted"])
def test_a_rule_that_holds_no_more_takes_its_warning_back(session: ComputeSession, action: str) -> None:
    look(session, 50)
    rule = IdleChecker.objects.get()
    if action == "off":
        write_checker(None, rule, {"is_active": False})
    elif action == "elsewhere":
        write_checker(None, rule, {}, Places())
    else:
        delete_checker(None, rule)
    look(session, 100)
    assert session.status == Status.RUNNING
    assert notices(session) == [] and not IdleWarning.objects.exists()


@pytest.mark.parametrize("what", ["node", "door", "passes", "record"])
def test_what_nobody_can_know_is_not_idle(session: ComputeSession, what: str) -> None:
    if what == "node":
        Agent.objects.update(status=Agent.Status.LOST)
    elif what == "record":
        SessionTraffic.objects.all().delete()
    moment = session.started_at + 90 * MINUTE
    if what != "passes":
        passes_went_on_until(moment)
    if what == "door":
        Reachability.objects.update(since=moment - 30 * MINUTE)
    idle.run_idle(moment)
    assert not IdleWarning.objects.exists()
    if what == "record":
        assert SessionTraffic.objects.get().last_at == moment, "the count begins anew"


def test_where_a_done_kernel_was_says_nothing_of_the_rest(session: ComputeSession) -> None:
    elsewhere = make_agent("elsewhere", status=Agent.Status.TERMINATED)
    Kernel.objects.create(
        session=session, rank=1, slots={}, agent=elsewhere, status=Status.TERMINATED, ended_at=session.started_at
    )
    look(session, 50)
    assert IdleWarning.objects.exists()


def test_a_node_that_was_lost_gives_the_whole_time_anew(session: ComputeSession) -> None:
    Agent.objects.update(returned_at=session.started_at + 30 * MINUTE)
    look(session, 79)
    assert not IdleWarning.objects.exists()
    look(session, 80)
    assert IdleWarning.objects.exists()


def test_who_puts_the_end_off_gets_the_time_and_a_warning_before_its_end(cast: Cast, session: ComputeSession) -> None:
    rule = IdleChecker.objects.get()
    with pytest.raises(NotFound):
        extend_idle(session, cast.alice, rule.pk, now=session.started_at)
    write_checker(None, rule, {"extension": 30 * MINUTE, "max_extensions": 2})
    for number in (1, 2):
        warned = 50 + 30 * (number - 1)
        look(session, warned)
        assert len(notices(session)) == 1
        now = session.started_at + (warned + 5) * MINUTE
        assert extend_idle(session, cast.alice, rule.pk, now=now) == session.started_at + (60 + 30 * number) * MINUTE
        assert notices(session) == []
    look(session, 110)
    with pytest.raises(Conflict) as caught:
        extend_idle(session, cast.alice, rule.pk, now=session.started_at + 111 * MINUTE)
    assert caught.value.code == "no-more-extensions"
    entries = AuditEntry.objects.filter(action="session.extend-idle").order_by("pk")
    assert [entry.details["number"] for entry in entries] == [1, 2]
    look(session, 120)
    assert session.status_reason == "idle-timeout"
    with pytest.raises(Conflict):
        extend_idle(session, cast.alice, rule.pk, now=session.started_at + 121 * MINUTE)


def test_an_extension_in_the_last_moment_counts(cast: Cast, session: ComputeSession, monkeypatch: Any) -> None:
    look(session, 50)
    real = idle.check_idle

    def then_extend(now: datetime) -> Any:
        reading = real(now)
        extend_idle(session, cast.alice, IdleChecker.objects.get().pk, now=now)
        return reading

    monkeypatch.setattr(idle, "check_idle", then_extend)
    look(session, 60)
    assert session.status == Status.RUNNING


def test_an_end_in_the_same_moment_leaves_a_straight_history(
    cast: Cast, session: ComputeSession, monkeypatch: Any
) -> None:
    real = idle.check_idle

    def then_end(now: datetime) -> Any:
        reading = real(now)
        kernel = only_kernel(session)
        kernel_reported(kernel.agent, report_of(kernel, KernelState.TERMINATED, exit_code=0))
        return reading

    monkeypatch.setattr(idle, "check_idle", then_end)
    look(session, 50)
    assert session.status_reason == "self-terminated"
    assert not IdleWarning.objects.exists()


def test_the_longest_run_is_warned_of_and_batch_sessions_are_left_alone(cast: Cast) -> None:
    checker("longest", kind="session-lifetime")
    interactive = make_running_session(cast.alice)
    batch = make_running_session(cast.alice, session_type="batch", startup_command="sleep 9")
    note_traffic({interactive.pk: interactive.started_at + 59 * MINUTE})
    look(interactive, 51)
    since = f"{interactive.started_at:%Y-%m-%d %H:%M:%S} UTC"
    assert notices(interactive) == [f"Running since {since}; idle checker longest ends sessions after 1 h."]
    look(interactive, 61)
    look(batch, 999)
    assert (interactive.status_reason, batch.status) == ("idle-session-lifetime", Status.RUNNING)


def test_the_first_of_two_warnings_is_told_and_ends(cast: Cast, session: ComputeSession) -> None:
    checker("longest", kind="session-lifetime", limit=70 * MINUTE, warning=30 * MINUTE)
    look(session, 41)
    assert "longest" in notices(session)[0]
    look(session, 51)
    assert "quiet" in notices(session)[0]
    look(session, 61)
    assert session.status_reason == "idle-timeout"
    assert IdleWarning.objects.exclude(collected_at=None).get().checker_name == "quiet"


def test_looking_twice_or_from_two_workers_does_everything_once(session: ComputeSession) -> None:
    for minutes in (50, 50, 60, 60):
        look(session, minutes)
    assert [row[2] for row in rows(session)].count("idle-warned") == 1
    assert [row[2] for row in rows(session)].count("idle-timeout") == 1
    now = timezone.now()
    assert take_lease(idle.IDLE_LEASE, "elsewhere:1:2", now=now, duration=MINUTE)
    assert idle.run_idle(now) == 0


def test_beat_and_the_clock_run_it() -> None:
    entry = app.conf.beat_schedule["idle"]
    assert (entry["task"], entry["schedule"]) == (tasks.run_idle.name, 15)
    tasks.run_idle()
    assert last_pass_at(idle.IDLE_LEASE) is not None


def test_the_audit_finds_whoever_was_ended_without_a_warning(session: ComputeSession) -> None:
    look(session, 50)
    look(session, 60)
    IdleWarning.objects.update(warned_at=session.started_at + 51 * MINUTE)
    assert list(run_checks(World(timezone.now()), ["I-15"])) == ["I-15"]
    IdleWarning.objects.all().delete()
    assert list(run_checks(World(timezone.now()), ["I-15"])) == ["I-15"]


def test_the_number_of_queries_does_not_grow_with_the_sessions(
    cast: Cast, session: ComputeSession, django_assert_max_num_queries: Any, django_assert_num_queries: Any
) -> None:
    agent = make_agent(cpu=100, mem="100g")
    others = [make_running_session(cast.alice, agent) for _ in range(3)]
    look(session, 1)
    passes_went_on_until(session.started_at + 70 * MINUTE)
    for minutes, most in ((2, 9), (55, 30), (70, 45)):
        with django_assert_max_num_queries(most):
            idle.run_idle(session.started_at + minutes * MINUTE)
    assert {ComputeSession.objects.get(pk=one.pk).status for one in [session, *others]} == {Status.TERMINATING}


def use(session: ComputeSession, minutes: float, cpu: float) -> None:
    """Let the node say what the session has used over the minute that ends then."""
    moment = session.started_at + minutes * MINUTE
    kernel = only_kernel(session)
    told = KernelUsage(kernel_id=kernel.pk, generation=kernel.generation, seconds=60, cpu=cpu)
    assert keep([(kernel.agent, UsageReport(at=moment.timestamp(), kernels=[told]))], moment) == 1


def test_low_utilization_is_warned_of_with_the_numbers_and_ended(cast: Cast) -> None:
    checker("lazy", kind="utilization", limit=30 * MINUTE, grace=40 * MINUTE, thresholds={"cpu": 5})
    busy, lazy = make_running_session(cast.alice), make_running_session(cast.alice)
    unknown = make_running_session(cast.alice)
    for minutes in range(1, 52):
        use(busy, minutes, 0.5)
        use(lazy, minutes, 0.01)
    look(lazy, 39)
    assert notices(lazy) == []
    look(lazy, 40.1)
    text = "It used CPU 1 % on average over 30 min; idle checker lazy ends sessions below CPU 5 %."
    assert notices(lazy) == [text]
    look(lazy, 50.2)
    assert (lazy.status, lazy.status_reason) == (Status.TERMINATING, "idle-utilization")
    assert lazy.status_data["measured_percent"] == {"cpu": 1.0}
    assert lazy.status_data["threshold_percent"] == {"cpu": 5.0}
    assert {one.pk for one in ComputeSession.objects.running()} == {busy.pk, unknown.pk}


def test_work_takes_a_warning_of_low_utilization_back(cast: Cast) -> None:
    checker("lazy", kind="utilization", limit=10 * MINUTE, thresholds={"cpu": 5})
    session = make_running_session(cast.alice)
    for minutes in range(1, 14):
        use(session, minutes, 0.01 if minutes < 12 else 1.0)
    look(session, 11)
    assert len(notices(session)) == 1
    look(session, 13)
    assert notices(session) == []


def test_a_session_that_computes_is_not_without_use_where_the_checker_says_so(cast: Cast) -> None:
    checker(thresholds={"cpu": 10})
    session = make_running_session(cast.alice)
    look(session, 0)
    for minutes in range(1, 56):
        use(session, minutes, 0.9)
    look(session, 55)
    assert notices(session) == []
    for minutes in range(56, 111):
        use(session, minutes, 0.01)
    look(session, 110)
    assert len(notices(session)) == 1


def test_what_was_noted_of_sessions_that_end_otherwise_is_forgotten(session: ComputeSession) -> None:
    look(session, 50)
    kernel = only_kernel(session)
    kernel_reported(kernel.agent, report_of(kernel, KernelState.TERMINATED, exit_code=0))
    look(session, 51)
    assert not IdleWarning.objects.exists()


def test_a_session_of_which_an_image_is_made_ends_when_that_is_over(cast: Cast, session: ComputeSession) -> None:
    look(session, 50)
    commit = ImageCommit.objects.create(session=session, owner=cast.alice, generation=1, title="mine", reference="r")
    look(session, 60)
    assert session.status == Status.RUNNING
    ImageCommit.objects.filter(pk=commit.pk).update(status=ImageCommit.Status.FAILED)
    look(session, 61)
    assert session.status_reason == "idle-timeout"
