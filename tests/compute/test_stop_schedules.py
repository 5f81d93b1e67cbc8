"""Schedules: they stop and resume by the clock, once each, and never against what a person did since."""

from __future__ import annotations

from datetime import UTC, datetime, time, timedelta
from typing import Any

import pytest
from django.utils import timezone

from backendai.base.core.errors import Conflict, UserError
from backendai.base.wire.messages import KernelState
from backendai.base.wire.node_jobs import JobState
from backendai.domain.accounts.models import ResourcePolicy
from backendai.domain.activity.models import AuditEntry
from backendai.domain.compute.models import SessionNotice, StopSchedule
from backendai.domain.compute.services.life.reports import kernel_reported
from backendai.domain.compute.services.life.resuming import resume_session
from backendai.domain.compute.services.life.stop_schedules import delete_schedule, set_schedule
from backendai.domain.compute.services.life.stopping import stop_session
from backendai.domain.compute.status import Status
from backendai.portal.loops.loops import run_pass
from backendai.scheduler.stop_times import DailyTimes
from tests.cast import Cast
from tests.compute.test_stopping import Stopper, file_servers_answer
from tests.controller.clocks import repair_at, rows
from tests.factories import report_of

pytestmark = pytest.mark.django_db
__all__ = ["file_servers_answer"]
DAY = (timezone.now() + timedelta(days=1)).date()
TIMES = DailyTimes(time(20), time(8), False, "UTC")


def at(hour: int, minute: int = 0, days: int = 0) -> datetime:
    return datetime.combine(DAY, time(hour, minute), UTC) + timedelta(days=days)


class Scheduled(Stopper):
    """A session of Alice's that stops at 20:00 and is resumed at 8:00."""

    def __init__(self, cast: Cast, **over: Any) -> None:
        super().__init__(cast, **over)
        set_schedule(self.owner, self.session, TIMES, now=at(12))

    def look(self, moment: datetime) -> str:
        repair_at(moment)
        return self.status

    def store(self) -> None:
        self.tell(JobState.DONE)
        self.end_kernels()
        self.session.refresh_from_db()

    def run(self) -> None:
        run_pass(timezone.now())
        kernel = self.session.kernels.select_related("agent").get()
        kernel_reported(kernel.agent, report_of(kernel, KernelState.RUNNING))


@pytest.fixture
def one(cast: Cast) -> Scheduled:
    return Scheduled(cast)


def actions() -> list[str]:
    found = AuditEntry.objects.filter(action__startswith="session.", actor=None).order_by("pk")
    return list(found.values_list("action", flat=True))


def test_it_warns_stops_and_resumes_each_once(one: Scheduled) -> None:
    assert one.look(at(19, 49)) == Status.RUNNING and not SessionNotice.objects.filter(kind="ending").exists()
    one.look(at(19, 50))
    assert SessionNotice.objects.get(kind="ending").due_at == at(20)
    assert one.look(at(20)) == Status.STOPPING and not SessionNotice.objects.filter(kind="ending").exists()
    one.store()
    assert (one.status, one.session.status_reason) == (Status.STOPPED, "stopped-by-schedule")
    assert one.look(at(20, 30)) == Status.STOPPED
    assert one.look(at(8, days=1)) == Status.PENDING
    one.run()
    assert one.look(at(8, 30, days=1)) == Status.RUNNING
    assert one.look(at(20, 1, days=1)) == Status.STOPPING
    assert actions() == ["session.stop", "session.resume", "session.stop"]


def test_what_a_person_does_in_between_counts(one: Scheduled) -> None:
    stop_session(one.owner, one.session, now=at(15))
    one.store()
    assert one.look(at(20)) == Status.STOPPED
    assert one.look(at(8, days=1)) == Status.STOPPED, "who stops it by hand resumes it by hand"
    resume_session(one.owner, one.session, now=at(8, 10, days=1))
    one.run()
    one.look(at(20, days=1))
    one.store()
    resume_session(one.owner, one.session, now=at(20, 10, days=1))
    one.run()
    assert one.look(at(20, 20, days=1)) == Status.RUNNING
    assert one.look(at(8, days=2)) == Status.RUNNING


@pytest.mark.parametrize(("moment", "expected"), [((20, 59), Status.STOPPING), ((21, 0), Status.RUNNING)])
def test_after_an_outage_it_acts_up_to_an_hour_late(one: Scheduled, moment: tuple[int, int], expected: str) -> None:
    assert one.look(at(*moment)) == expected


def test_what_cannot_be_stopped_goes_on_and_its_history_says_so(one: Scheduled) -> None:
    one.owner.policy = ResourcePolicy.objects.create(name="none", max_stopped_sessions=0)
    one.owner.save()
    one.look(at(19, 50))
    assert one.look(at(20)) == Status.RUNNING
    assert not SessionNotice.objects.filter(kind="ending").exists(), "it does not end soon"
    assert rows(one.session)[-1][1:3] == ("FAILURE", "schedule-missed")
    assert one.look(at(20, 5)) == Status.RUNNING
    assert [row[2] for row in rows(one.session)].count("schedule-missed") == 1


def test_a_new_schedule_does_not_act_for_the_past_and_a_deleted_one_not_at_all(one: Scheduled) -> None:
    set_schedule(one.owner, one.session, TIMES, now=at(20, 10))
    assert one.look(at(20, 11)) == Status.RUNNING
    assert delete_schedule(one.owner, one.session) and not delete_schedule(one.owner, one.session)
    assert one.look(at(20, days=1)) == Status.RUNNING


def test_faults_are_told_at_their_fields(one: Scheduled, cast: Cast) -> None:
    for over, field in (({"time_zone": "Mars/Olympus"}, "time_zone"), ({"time_zone": "../etc"}, "time_zone"),
                        ({"resume_at": time(20)}, "resume_at")):  # fmt: skip
        values = {"stop_at": time(20), "resume_at": time(8), "is_weekdays": False, "time_zone": "UTC"} | over
        with pytest.raises(UserError) as caught:
            set_schedule(one.owner, one.session, DailyTimes(**values), now=at(12))
        assert caught.value.field == field
    batch = Stopper(cast, session_type="batch", startup_command="true")
    with pytest.raises(Conflict):
        set_schedule(batch.owner, batch.session, TIMES, now=at(12))
    one.owner.policy = ResourcePolicy.objects.create(name="none", max_stopped_sessions=0)
    one.owner.save()
    with pytest.raises(Conflict, match="allow no stopped sessions"):
        set_schedule(one.owner, one.session, TIMES, now=at(12))
    assert StopSchedule.objects.count() == 1
