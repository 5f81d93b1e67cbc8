"""Sessions that are stopped and resumed: their homes are stored first, and nothing that goes wrong loses one."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import pytest
from django.db import transaction
from django.utils import timezone

from backendai.base.core.errors import Conflict, UserError
from backendai.base.wire.capabilities import Capability
from backendai.base.wire.homes import STORE, StoreWork
from backendai.base.wire.messages import KernelState
from backendai.base.wire.node_jobs import CAPABILITY, JobState, NodeJobReport
from backendai.domain.accounts.models import ResourcePolicy
from backendai.domain.activity.jobs import cancel_job
from backendai.domain.activity.models import AuditEntry, BackgroundJob
from backendai.domain.cluster.models import Agent, ResourceGroup
from backendai.domain.cluster.node_jobs import kind_named, orders_of
from backendai.domain.compute.auditing import World, run_checks
from backendai.domain.compute.models import Allocation, ComputeSession, HomeStore, Kernel, SessionNotice
from backendai.domain.compute.services.agents.kernel_specs import spec_for
from backendai.domain.compute.services.life.draining import start_drain
from backendai.domain.compute.services.life.ending import end_sessions, terminate_session
from backendai.domain.compute.services.life.reports import kernel_reported
from backendai.domain.compute.services.life.resuming import resume_session
from backendai.domain.compute.services.life.stopped_retention import kept_until
from backendai.domain.compute.services.life.stopping import begin_stop, plan_stop, stop_session
from backendai.domain.compute.services.status.moves import StatusCause
from backendai.domain.compute.status import Phase, Result, Status
from backendai.domain.storage.models import Folder
from backendai.domain.storage.services import folders
from backendai.domain.storage.status import FolderStatus, Usage
from backendai.domain.storage.transitions import transition
from backendai.portal.loops.loops import run_pass
from tests.cast import Cast
from tests.controller.clocks import later, repair_at, rows
from tests.controller.test_idle import checker, look
from tests.factories import make_agent, make_running_session, make_session, report_of
from tests.mount_tools import storage_host

pytestmark = pytest.mark.django_db

_CAN = [Capability.HOMES, Capability.IMAGES, Capability.FOLDERS, f"{CAPABILITY}{STORE}"]
ABLE = {"capabilities": _CAN}
BATCH = {"session_type": "batch", "startup_command": "python train.py", "may_be_stopped": True}


@pytest.fixture(autouse=True)
def file_servers_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    def deliver(folder: Folder, *, now: Any) -> bool:
        transition([folder.pk], FolderStatus.READY, now=now, only_from=[FolderStatus.CREATING])
        folder.refresh_from_db()
        return True

    monkeypatch.setattr(folders, "deliver", deliver)


class Stopper:
    """A running session of Alice's on an agent that can store homes, and what its agent says."""

    def __init__(self, cast: Cast, **over: Any) -> None:
        self.owner, self.agent = cast.alice, able_agent()
        self.session = make_running_session(cast.alice, self.agent, **over)

    def stop(self) -> BackgroundJob:
        self.session.refresh_from_db()
        return stop_session(self.owner, self.session, now=timezone.now())

    def orders(self) -> list[Any]:
        found = orders_of([self.agent.pk]).get(self.agent.pk, [])
        return [kind_named(STORE).spec(self.agent, one.job_id) for one in found]

    def tell(self, state: JobState, *, which: int = 0, **over: Any) -> bool:
        report = NodeJobReport(kind=STORE, job_id=self.orders()[which].job_id, state=state, **over)
        return kind_named(STORE).heard(self.agent, report, now=timezone.now())

    def end_kernels(self) -> None:
        for kernel in self.session.kernels.filter(status=Status.TERMINATING):
            assert kernel.agent
            kernel_reported(kernel.agent, report_of(kernel, KernelState.TERMINATED, exit_code=137))

    def be_stopped(self) -> None:
        self.stop()
        while self.orders():
            assert self.tell(JobState.DONE, result={"size_bytes": 2**20, "entries": 7})
        self.end_kernels()
        assert self.status == Status.STOPPED

    def be_resumed(self) -> bool:
        """Go on, as the stop is cancelled."""
        self.resume()
        return self.status == Status.RUNNING

    def resume(self) -> None:
        self.session.refresh_from_db()
        resume_session(self.owner, self.session, now=timezone.now())

    @property
    def status(self) -> str:
        self.session.refresh_from_db()
        return self.session.status


def able_agent() -> Agent:
    agent = make_agent(**ABLE)
    storage_host("local", agent)
    return agent


@pytest.fixture
def one(cast: Cast) -> Stopper:
    return Stopper(cast)


def violations(now: datetime | None = None) -> dict[str, list[str]]:
    return run_checks(World(now=now or timezone.now()))


def test_a_session_stops_when_its_home_is_stored_and_runs_again_with_it(one: Stopper) -> None:
    one.stop()
    assert one.status == Status.STOPPING
    (order,) = one.orders()
    work = StoreWork.model_validate(order.work)
    kernel = one.session.kernels.get()
    assert (work.kernel_id, work.generation, work.home.file) == (kernel.pk, 1, "home-main1.tar")
    assert one.tell(JobState.RUNNING, message="10 MB", progress=0.3)
    assert (one.status, Allocation.objects.count()) == (Status.STOPPING, 2)
    assert one.tell(JobState.DONE, result={"size_bytes": 5, "entries": 2})
    assert one.status == Status.STOPPING
    kernel.refresh_from_db()
    assert (kernel.status, kernel.forced_at is not None) == (Status.TERMINATING, True)
    one.end_kernels()
    assert (one.status, Allocation.objects.count()) == (Status.STOPPED, 0)
    assert one.session.stopped_at and not violations()

    one.resume()
    assert one.status == Status.PENDING
    run_pass(timezone.now())
    kernel.refresh_from_db()
    assert kernel.agent and (kernel.status, kernel.generation) == (Status.SCHEDULED, 2)
    spec = spec_for(kernel.agent, kernel.pk)
    assert spec.home and (spec.home.file, spec.home.host) == ("home-main1.tar", "local")
    assert (spec.mounts, spec.environ["BACKENDAI_RESUMED"]) == ([], "1")
    kernel_reported(kernel.agent, report_of(kernel, KernelState.RUNNING))
    assert one.status == Status.RUNNING and not violations()
    assert HomeStore.objects.get().status == HomeStore.Status.DONE


def test_it_stops_again_into_the_same_folder(one: Stopper) -> None:
    one.be_stopped()
    one.resume()
    run_pass(timezone.now())
    kernel = one.session.kernels.select_related("agent").get()
    kernel_reported(kernel.agent, report_of(kernel, KernelState.RUNNING))
    one.be_stopped()
    assert Folder.objects.filter(usage=Usage.HOME).count() == 1
    assert one.session.mount_count == 1
    assert not Folder.objects.offered_to(one.owner).exists()  # nothing can mount it


def test_a_failed_or_cancelled_store_lets_the_session_go_on(one: Stopper) -> None:
    started = one.session.started_at
    job = one.stop()
    assert not one.tell(JobState.FAILED, message="No space left.")
    job.refresh_from_db()
    assert (one.status, one.session.started_at, job.status) == (Status.RUNNING, started, "FAILED")
    assert rows(one.session)[-1][1:3] == ("FAILURE", "stop-given-up")
    job = one.stop()
    assert one.tell(JobState.RUNNING)
    cancel_job(one.owner, job.pk, now=timezone.now())
    assert one.orders() == []
    repair_at(later(seconds=1))
    job.refresh_from_db()
    assert (one.status, job.status) == (Status.RUNNING, "CANCELLED")
    assert refusal(one) == "stop-cancelled"
    HomeStore.objects.update(heard_at=later(seconds=-11))
    one.stop()
    one.resume()
    assert one.status == Status.RUNNING
    assert not violations()


def test_a_session_whose_agent_is_silent_goes_on_when_the_time_is_up(one: Stopper) -> None:
    one.stop()
    repair_at(later(seconds=301))
    assert (one.status, one.session.kernels.get().status) == (Status.RUNNING, Status.RUNNING)


def test_all_homes_of_a_cluster_are_stored_before_any_kernel_ends(cast: Cast) -> None:
    two = Stopper(cast, cluster_size=2)
    two.stop()
    assert two.tell(JobState.DONE)
    assert set(two.session.kernels.values_list("status", flat=True)) == {Status.RUNNING}
    assert two.tell(JobState.DONE)
    assert set(two.session.kernels.values_list("status", flat=True)) == {Status.TERMINATING}
    two.end_kernels()
    two.resume()
    run_pass(timezone.now())
    specs = [spec_for(kernel.agent, kernel.pk) for kernel in two.session.kernels.select_related("agent")]
    assert [spec.home.file for spec in specs if spec.home] == ["home-main1.tar", "home-sub1.tar"]


def test_a_kernel_that_is_lost_after_its_home_is_stored_does_not_keep_the_others_from_stopping(cast: Cast) -> None:
    two = Stopper(cast, cluster_size=2)
    two.stop()
    assert two.tell(JobState.DONE)
    stored = HomeStore.objects.get(status=HomeStore.Status.DONE).kernel
    Kernel.objects.filter(pk=stored.pk).update(status=Status.TERMINATED, status_reason="container-missing")
    Allocation.objects.filter(kernel=stored).delete()
    assert two.tell(JobState.DONE)
    two.end_kernels()
    assert two.status == Status.STOPPED


def test_a_kernel_that_ends_before_its_home_is_stored_ends_the_session(one: Stopper) -> None:
    one.stop()
    kernel = one.session.kernels.get()
    kernel_reported(one.agent, report_of(kernel, KernelState.TERMINATED, exit_code=1, reason="exited"))
    assert (one.status, one.session.status_reason) == (Status.TERMINATED, "self-terminated")
    repair_at(later(seconds=1))
    assert HomeStore.objects.get().status == HomeStore.Status.GIVEN_UP
    assert Folder.objects.get().status == FolderStatus.TRASHED


def test_it_can_be_terminated_while_it_stops_and_when_it_is_stopped(cast: Cast) -> None:
    one, two = Stopper(cast), Stopper(cast)
    one.stop()
    one.session.refresh_from_db()
    terminate_session(one.session, one.owner)
    one.end_kernels()
    assert (one.status, one.session.status_reason) == (Status.TERMINATED, "user-requested")
    two.be_stopped()
    assert terminate_session(two.session, two.owner).cancelled == {two.session.pk}
    assert (two.status, two.session.status_reason) == (Status.TERMINATED, "user-requested")
    assert two.session.ended_at
    repair_at(later(seconds=1))
    assert set(Folder.objects.values_list("status", flat=True)) == {FolderStatus.TRASHED}
    assert not violations()


def test_a_batch_session_that_may_be_stopped_begins_again_with_its_home_and_succeeds(cast: Cast) -> None:
    one = Stopper(cast, **BATCH)
    job, kernel = one.stop(), one.session.kernels.get()
    assert [StoreWork.model_validate(order.work).grace for order in one.orders()] == [60.0]
    assert one.tell(JobState.RUNNING)
    with pytest.raises(Conflict, match="not stored yet"):
        kernel_reported(one.agent, report_of(kernel, KernelState.TERMINATED, exit_code=143))
    with pytest.raises(Conflict, match="program is ending"):
        one.resume()
    cancel_job(one.owner, job.pk, now=timezone.now())  # too late: it has SIGTERM
    repair_at(later(seconds=1))
    assert one.status == Status.STOPPING and one.tell(JobState.RUNNING)
    one.tell(JobState.DONE)
    one.end_kernels()
    assert one.status == Status.STOPPED and not violations()

    one.resume()
    run_pass(timezone.now())
    kernel.refresh_from_db()
    assert kernel.agent
    spec = spec_for(kernel.agent, kernel.pk)
    assert spec.home and (spec.command, spec.environ["BACKENDAI_RESUMED"]) == ("python train.py", "1")
    kernel_reported(kernel.agent, report_of(kernel, KernelState.RUNNING))
    kernel_reported(kernel.agent, report_of(kernel, KernelState.TERMINATED, exit_code=0, reason="exited"))
    assert (one.status, one.session.result) == (Status.TERMINATED, Result.SUCCESS)
    assert not violations()


@pytest.mark.parametrize(("code", "reason", "result"), [
    (0, "", Result.SUCCESS), (0, "exited", Result.SUCCESS), (1, "exited", Result.FAILED),
])  # fmt: skip
def test_a_program_that_ends_by_itself_while_it_is_stopped_ends_its_session(
    cast: Cast, code: int, reason: str, result: str
) -> None:
    one = Stopper(cast, **BATCH)
    job = one.stop()
    one.tell(JobState.RUNNING)
    kernel = one.session.kernels.get()
    kernel_reported(one.agent, report_of(kernel, KernelState.TERMINATED, exit_code=code, reason=reason))
    assert (one.status, one.session.result) == (Status.TERMINATED, result)
    repair_at(later(seconds=1))
    job.refresh_from_db()
    assert job.status == BackgroundJob.Status.CANCELLED
    assert not violations()


@pytest.mark.parametrize("was_stopped", [False, True])
def test_a_program_that_was_ended_in_vain_loses_no_earlier_home(cast: Cast, was_stopped: bool) -> None:
    one = Stopper(cast, **BATCH)
    kernel = one.session.kernels.get()
    if was_stopped:
        one.be_stopped()
        one.resume()
        run_pass(timezone.now())
        kernel_reported(one.agent, report_of(kernel, KernelState.RUNNING))
    one.stop()
    one.tell(JobState.RUNNING)
    one.tell(JobState.FAILED, message="No space left.")
    assert one.status == Status.RUNNING
    kernel_reported(one.agent, report_of(kernel, KernelState.TERMINATED, exit_code=143))
    expected = Status.STOPPED if was_stopped else Status.ERROR
    assert (one.status, one.session.status_reason) == (expected, "home-not-stored")
    assert not violations()


@pytest.mark.parametrize(("over", "code"), [
    ({"session_type": "interactive", "startup_command": ""}, "batch-only"), ({"cluster_size": 2}, "single-kernel-only"),
])  # fmt: skip
def test_only_batch_sessions_of_one_kernel_choose_to_be_stopped(cast: Cast, over: dict[str, Any], code: str) -> None:
    with pytest.raises(UserError) as caught:
        make_session(cast.alice, **BATCH | over)
    assert (caught.value.code, caught.value.field) == (code, "may_be_stopped")


@pytest.mark.parametrize("code", ["pending-timeout", "gave-up-scheduling"])
def test_a_session_that_finds_no_place_is_stopped_again(one: Stopper, code: str) -> None:
    one.be_stopped()
    one.resume()
    end_sessions([one.session.pk], StatusCause(Phase.SWEEP, code, "Too long."), now=timezone.now())
    assert (one.status, one.session.status_reason) == (Status.STOPPED, code)
    one.resume()
    run_pass(timezone.now())
    assert one.status == Status.SCHEDULED
    assert not violations()


def test_a_resumed_session_whose_start_or_agent_fails_is_stopped_again(one: Stopper) -> None:
    one.be_stopped()
    one.resume()
    for _ in range(4):  # the start and three retries
        ComputeSession.objects.update(avoid_agents=[])
        run_pass(timezone.now())
        kernel = one.session.kernels.select_related("agent").get()
        report = report_of(kernel, KernelState.TERMINATED, reason="home-missing", message="Not there.")
        kernel_reported(kernel.agent, report)
    assert (one.status, one.session.status_reason) == (Status.STOPPED, "home-missing")
    one.resume()
    run_pass(timezone.now())
    kernel.refresh_from_db()
    kernel_reported(kernel.agent, report_of(kernel, KernelState.RUNNING))
    kernel_reported(kernel.agent, report_of(kernel, KernelState.TERMINATED, reason="container-missing"))
    assert (one.status, one.session.status_reason) == (Status.STOPPED, "container-missing")
    assert not violations()


def test_the_agent_may_be_lost_once_the_home_is_stored(one: Stopper) -> None:
    one.stop()
    one.tell(JobState.DONE)
    Agent.objects.update(status=Agent.Status.LOST, lost_at=timezone.now() - timedelta(hours=1))
    repair_at(timezone.now(), silent=(one.agent,))
    assert one.status == Status.STOPPED
    assert one.session.kernels.get().is_unconfirmed


def test_a_stopped_session_starts_only_where_homes_can_be_read(one: Stopper) -> None:
    one.be_stopped()
    Agent.objects.filter(pk=one.agent.pk).update(schedulable=False)
    other = make_agent(capabilities=[Capability.IMAGES, Capability.FOLDERS])
    storage_host("local", other)
    one.resume()
    run_pass(timezone.now())
    assert one.status == Status.PENDING
    assert "local" in one.session.reason_text
    able_agent()
    run_pass(timezone.now())
    assert one.status == Status.SCHEDULED


@pytest.mark.parametrize(("at_end", "storage", "status"), [
    ("stop", "", Status.STOPPING), ("stop", "It is away.", Status.TERMINATING), ("terminate", "", Status.TERMINATING),
])  # fmt: skip
def test_an_idle_session_is_stopped_where_it_can_be(cast: Cast, at_end: str, storage: str, status: str) -> None:
    one = Stopper(cast)
    one.agent.storage_hosts.update(fault=storage)
    checker(at_end=at_end)
    for minutes in (0, 50, 61):
        look(one.session, minutes)
    assert (one.status, one.session.status_reason) == (status, "idle-timeout")
    if status == Status.STOPPING:
        one.tell(JobState.DONE)
    one.end_kernels()
    assert one.status == (Status.STOPPED if status == Status.STOPPING else Status.TERMINATED)
    assert not violations()


@pytest.mark.parametrize("kind", [{}, BATCH, {**BATCH, "retry_on_agent_loss": True}])
def test_a_drain_moves_its_sessions_to_other_agents_at_the_deadline(cast: Cast, kind: dict[str, Any]) -> None:
    one, two = Stopper(cast, **kind), make_running_session(cast.alice, make_agent())
    kernel = two.kernels.select_related("agent").get()
    other = able_agent()
    for agent in (one.agent, kernel.agent):
        start_drain(cast.dana, agent, now=timezone.now(), ends_at=later(minutes=1))
    repair_at(later(minutes=2))
    two.refresh_from_db()
    assert (one.status, two.status) == (Status.STOPPING, Status.TERMINATING)
    one.tell(JobState.DONE)
    one.end_kernels()
    repair_at(later(minutes=3))
    assert (one.status, one.session.resumes) == (Status.PENDING, 1)
    run_pass(timezone.now())
    assert one.session.kernels.get().agent == other
    assert not violations()


def test_a_batch_session_runs_again_from_its_start_where_its_home_cannot_be_stored(cast: Cast) -> None:
    one = Stopper(cast, **BATCH, retry_on_agent_loss=True)
    one.agent.storage_hosts.update(fault="It is away.")
    start_drain(cast.dana, one.agent, now=timezone.now(), ends_at=later(minutes=1))
    repair_at(later(minutes=2))
    one.end_kernels()
    assert (one.status, one.session.resumes, one.session.retries) == (Status.PENDING, 0, 1)


@pytest.mark.parametrize("kind", [{}, BATCH])
def test_a_session_gives_way_to_one_of_higher_priority_and_comes_back(cast: Cast, kind: dict[str, Any]) -> None:
    one = Stopper(cast, resources={"cpu": 4, "mem": "1g"}, priority=5, **kind)
    ResourceGroup.objects.update(preempt_after=timedelta(minutes=30))
    urgent = make_session(cast.bob, resources={"cpu": 2, "mem": "1g"}, priority=20)
    run_pass(timezone.now())
    assert one.status == Status.RUNNING  # it has not run for long enough
    run_pass(later(minutes=31))
    assert (one.status, one.session.status_reason) == (Status.STOPPING, "gave-way")
    assert rows(urgent)[-1][2] == "others-give-way"
    run_pass(later(minutes=32))
    one.tell(JobState.DONE)
    one.end_kernels()
    assert one.status == Status.STOPPED
    run_pass(later(minutes=33))
    urgent.refresh_from_db()
    assert urgent.status == Status.SCHEDULED
    repair_at(later(minutes=33))
    run_pass(later(minutes=33))
    assert (one.status, one.session.resumes) == (Status.PENDING, 1)
    assert not violations()


def test_what_cannot_be_stopped_is_refused_with_the_reason(cast: Cast) -> None:
    one = Stopper(cast)
    assert refusal(Stopper(cast, **BATCH | {"may_be_stopped": False})) == "kind-not-stopped"
    with pytest.raises(Conflict) as caught:
        resume_session(one.owner, one.session, now=timezone.now())
    assert caught.value.code == "not-stopped"
    Agent.objects.filter(pk=one.agent.pk).update(capabilities=[Capability.IMAGES])
    assert refusal(one) == "homes-not-stored"
    Agent.objects.filter(pk=one.agent.pk).update(**ABLE)
    policy = ResourcePolicy.objects.create(name="small", max_folder_bytes=10)
    Folder.objects.create(user=cast.alice, name="full", host=storage_host(), used_bytes=10, status=FolderStatus.READY)
    cast.alice.policy = policy
    cast.alice.save()
    assert refusal(one) == "folder-bytes"
    cast.alice.policy = None
    cast.alice.save()
    one.agent.storage_hosts.update(fault="It is away.")
    assert refusal(one) == "no-storage-host"
    one.agent.storage_hosts.update(fault="")
    one.be_stopped()
    assert refusal(one) == "not-running"
    assert one.session.kernels.get().status == Status.TERMINATED


@pytest.mark.parametrize("holder", ["user", "domain"])
def test_a_policy_limits_the_stopped_sessions_of_one_user(cast: Cast, holder: str) -> None:
    one, two, others = Stopper(cast), Stopper(cast), Stopper(cast)
    policy = ResourcePolicy.objects.create(name="one", max_stopped_sessions=1)
    limited = cast.alice if holder == "user" else cast.alice.domain
    limited.policy = policy
    limited.save()
    one.stop()
    assert refusal(two) == "too-many-stopped"
    plan = plan_stop(ComputeSession.objects.get(pk=two.session.pk), now=timezone.now()) if one.be_resumed() else None
    assert plan
    others.stop()
    with pytest.raises(Conflict, match="may have 1 stopped"), transaction.atomic():  # both asked at the same time
        begin_stop(plan, StatusCause(Phase.RUN, "stopped"), now=timezone.now())
    start_drain(cast.dana, two.agent, now=timezone.now(), ends_at=later(minutes=1))
    repair_at(later(minutes=2))
    assert (two.status, two.session.status_reason) == (Status.TERMINATING, "agent-drained")
    assert not violations()


def test_a_session_that_stays_stopped_is_terminated_after_a_warning(one: Stopper, settings: Any) -> None:
    settings.STOPPED_FOR = timedelta(days=30)
    one.be_stopped()
    assert not notices(one)
    repair_at(one.session.stopped_at + timedelta(days=27))
    assert notices(one) == [("ending", one.session.stopped_at + timedelta(days=30))]
    assert kept_until(one.session) == one.session.stopped_at + timedelta(days=30)
    repair_at(later(days=29))
    assert one.status == Status.STOPPED and not violations(later(days=29))
    assert "L-01" in violations(later(days=31))  # the pass has to end it by then
    repair_at(later(days=30, seconds=1))
    assert (one.status, one.session.status_reason) == (Status.TERMINATED, "stopped-too-long")
    assert [kind for kind, _ in notices(one)] == ["ending", "ended"]
    assert Folder.objects.get().status == FolderStatus.TRASHED
    assert AuditEntry.objects.filter(action="session.terminate", target_id=str(one.session.pk)).exists()
    assert not violations(later(days=31))


def test_after_a_late_warning_or_a_resume_the_time_begins_anew(one: Stopper, settings: Any) -> None:
    settings.STOPPED_FOR = timedelta(0)
    one.be_stopped()
    repair_at(later(days=1000))
    assert one.status == Status.STOPPED and kept_until(one.session) is None
    settings.STOPPED_FOR = timedelta(days=4)
    repair_at(at := later(days=1000))
    assert one.status == Status.STOPPED and kept_until(one.session) == at + timedelta(days=2)
    repair_at(at + timedelta(days=1))
    one.resume()
    assert not notices(one)
    end_sessions([one.session.pk], StatusCause(Phase.SWEEP, "pending-timeout", "Too long."), now=at)
    repair_at(at + timedelta(days=2, seconds=1))
    assert one.status == Status.STOPPED and notices(one) == [("ending", at + timedelta(days=4, seconds=1))]


def notices(one: Stopper) -> list[tuple[str, Any]]:
    found = SessionNotice.objects.filter(session=one.session, kind__in=["ending", "ended"]).order_by("pk")
    return list(found.values_list("kind", "due_at"))


def refusal(one: Stopper) -> str:
    with pytest.raises(Conflict) as caught:
        one.stop()
    return str(caught.value.code)
