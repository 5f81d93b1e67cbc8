"""Whatever happens in whatever order, what must hold holds: a random walk over the whole platform."""

from __future__ import annotations

import contextlib
from collections.abc import Collection
from datetime import datetime, time, timedelta
from typing import Any
from unittest import mock

import pytest
from django.utils import timezone
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test

from backendai.base.core.errors import Conflict, NotFound, UserError
from backendai.base.wire.node_jobs import JobState
from backendai.domain.accounts.models import Domain, Membership, Project, User
from backendai.domain.activity.models import AuditEntry
from backendai.domain.cluster.models import Agent, PassLease, Reachability, ResourceGroup
from backendai.domain.compute.auditing import World
from backendai.domain.compute.models import (
    Allocation,
    ComputeSession,
    Kernel,
    KernelLog,
    SchedulingRecord,
    UnknownKernel,
)
from backendai.domain.compute.services.life.ending import terminate_session
from backendai.domain.compute.services.life.reports import kernel_reported
from backendai.domain.compute.services.life.resuming import resume_session
from backendai.domain.compute.services.life.stop_schedules import set_schedule
from backendai.domain.compute.services.life.stopping import stop_session
from backendai.domain.compute.spec import MountRequest, RoleSpec
from backendai.domain.compute.status import LIVE, TERMINAL, UNPLACED, Status
from backendai.domain.pipelines.models import Run
from backendai.domain.pipelines.reading import RunsReading, read_runs
from backendai.domain.pipelines.services.acting import act
from backendai.domain.pipelines.services.changing import cancel_run, pause_run, resume_run, retry_failed
from backendai.domain.pipelines.services.creating import RunSpec, create_run
from backendai.domain.planning.apply import apply_plan
from backendai.domain.planning.snapshot import read_snapshot
from backendai.domain.storage.models import Folder, StorageHost
from backendai.domain.storage.status import FolderStatus
from backendai.domain.storage.transitions import transition
from backendai.ops.management.commands.audit import run_checks
from backendai.portal.loops import loops
from backendai.portal.loops.loops import run_pipelines
from backendai.scheduler.decide import decide
from backendai.scheduler.snapshot import Snapshot
from backendai.scheduler.stop_times import DailyTimes
from tests.cast import make_cast
from tests.effort import LONG
from tests.factories import make_agent, make_image, make_session
from tests.mount_tools import ready_folder, storage_host
from tests.simulation import Node, Platform

pytestmark = pytest.mark.postgres

WALKS = 5  # the same walks at random: what one misses another may find
SAFETY = ["I-01", "I-02", "I-03", "I-04", "I-05", "I-06", "I-07", "I-08", "I-16", "R-01", "R-02", "R-03"]
ENGINE_FAULTS = ["refuse", "silent-before", "silent-after", "crash-before", "crash-between", "crash-after"]
index = st.integers(0, 50)


def clean() -> None:
    """Empty the tables that the walk writes; far faster than a flush of all."""
    for model in (AuditEntry, Run, KernelLog, Allocation, SchedulingRecord, Kernel, ComputeSession,
                  Folder, StorageHost, Agent, Reachability, PassLease, ResourceGroup,
                  Membership, Project, User, Domain):  # fmt: skip
        model.objects.all().delete()


class WholePlatform(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        clean()
        self.cast = make_cast()
        make_image()  # a run can come before the first session, which would make it
        self.platform = Platform([Node(make_agent(name, cpu=4, mem="8g")) for name in ("n1", "n2")], timezone.now())
        self.old_picture: list[tuple[ResourceGroup, Snapshot]] = []
        self.old_runs: RunsReading | None = None
        self.folder = ready_folder(
            self.cast.alice, host=storage_host("local", *[one.agent for one in self.platform.nodes])
        )
        self.patches = [
            mock.patch("django.utils.timezone.now", lambda: self.platform.now),
            mock.patch("backendai.base.wire.broker.hints.hint", self.platform.send),
            mock.patch("backendai.domain.storage.services.folders.deliver", self.make_folder),
            mock.patch(
                "backendai.portal.loops.repair.reachability.door_answers", lambda address: self.platform.is_door_open
            ),
        ]
        for patch in self.patches:
            patch.start()

    def make_folder(self, folder: Folder, *, now: datetime) -> None:
        transition([folder.pk], FolderStatus.READY, now=now)
        folder.refresh_from_db()

    def node(self, number: int) -> Node:
        return self.platform.nodes[number % len(self.platform.nodes)]

    def session(self, number: int, among: Collection[Status] = LIVE) -> ComputeSession | None:
        sessions = list(ComputeSession.objects.filter(status__in=among).order_by("created_at", "pk"))
        return sessions[number % len(sessions)] if sessions else None

    @initialize()
    def begin(self) -> None:
        for node in self.platform.nodes:
            node.sync()
        make_session(self.cast.alice)
        self.platform.settle(rounds=2)

    @rule(cpu=st.sampled_from([1, 2, 3, 4]), size=st.sampled_from([1, 1, 2]), batch=st.booleans(), mounts=st.booleans())
    def create(self, cpu: int, size: int, batch: bool, mounts: bool) -> None:
        kind: dict[str, Any] = {"session_type": "batch", "startup_command": "true"} if batch else {}
        kind |= {"may_be_stopped": True} if batch and size == 1 else {}
        kind |= {"mounts": [MountRequest("data")]} if mounts else {}
        try:
            make_session(self.cast.alice, resources={"cpu": cpu, "mem": "1g"}, cluster_size=size, **kind)
        except UserError as error:
            assert error.code == "bigger-than-any-agent"

    @rule(
        policy=st.sampled_from(["end", "tolerate", "restart"]),
        main=st.sampled_from(["end", "restart"]),
        done_when=st.sampled_from(["", "worker", "all"]),
        after=st.booleans(),
    )
    def create_with_roles(self, policy: str, main: str, done_when: str, after: bool) -> None:
        worker = RoleSpec(count=2, on_failure=policy, after=["main"] if after else [])
        roles = {"main": RoleSpec(on_failure=main), "worker": worker}
        kind = {"session_type": "batch", "startup_command": "true", "roles": roles, "done_when": done_when}
        make_session(self.cast.alice, resources={"cpu": 1, "mem": "1g"}, **kind)

    @rule(
        array=st.integers(1, 3),
        retry=st.sampled_from([0, 2]),
        on_failure=st.sampled_from(["continue", "drain", "stop"]),
        probe=st.sampled_from([0, 1]),
    )
    def launch_run(self, array: int, retry: int, on_failure: str, probe: int) -> None:
        own = {"array": array, "retry": retry, "probe": probe, "startup_command": "true"}
        each = {"array": array, "after": {"first": "each"}, "startup_command": "true"}
        usual = {"image": "python", "resources": {"cpu": 1, "mem": "1g"}}
        steps = {"first": own, "second": each, "third": {"after": {"second": "any"}, "startup_command": "true"}}
        wish = RunSpec(document={"on_failure": on_failure, "defaults": usual, "steps": steps})
        create_run(self.cast.alice, wish, now=self.platform.now)

    @rule()
    def advance_runs(self) -> None:
        run_pipelines(self.platform.now)

    @rule()
    def another_control_looks_at_runs(self) -> None:
        self.old_runs = read_runs(self.platform.now)

    @rule()
    def another_control_acts_late_on_runs(self) -> None:
        if self.old_runs is not None:
            act(self.old_runs)

    @rule(number=index, verb=st.sampled_from([cancel_run, retry_failed, pause_run, resume_run]))
    def change_run(self, number: int, verb: Any) -> None:
        runs = list(Run.objects.order_by("created_at", "pk"))
        if runs:
            now = {} if verb in (pause_run, resume_run) else {"now": self.platform.now}
            with contextlib.suppress(Conflict):
                verb(runs[number % len(runs)], self.cast.alice, **now)

    @rule(
        give_up=st.sampled_from([0, 1, 3]),
        then=st.sampled_from(ResourceGroup.GiveUp.values),
        pending=st.sampled_from([0, 100, 1000]),
        retries=st.sampled_from([0, 3]),
    )
    def rules_change(self, give_up: int, then: str, pending: int, retries: int) -> None:
        ResourceGroup.objects.update(
            give_up_after=give_up,
            on_give_up=then,
            pending_timeout=timedelta(seconds=pending),
            max_retries=retries,
        )

    @rule(number=index, seconds=st.sampled_from([1, 60]))
    def time_limit(self, number: int, seconds: int) -> None:
        if session := self.session(number):
            ComputeSession.objects.filter(pk=session.pk).update(batch_timeout=timedelta(seconds=seconds))

    @rule(number=index, other=index)
    def depend(self, number: int, other: int) -> None:
        one, earlier = self.session(number), self.session(other)
        if one and earlier and one.status == Status.PENDING and earlier.created_at < one.created_at:
            one.depends_on.add(earlier)

    @rule(number=index, force=st.booleans(), admin=st.booleans())
    def terminate(self, number: int, force: bool, admin: bool) -> None:
        if session := self.session(number):
            terminate_session(session, self.cast.dana if admin else self.cast.alice, force=force)

    @rule(number=index)
    def stop(self, number: int) -> None:
        if session := self.session(number, [Status.RUNNING]):
            with contextlib.suppress(Conflict):
                stop_session(self.cast.alice, session, now=self.platform.now)

    @rule(number=index, state=st.sampled_from([JobState.RUNNING, JobState.DONE, JobState.FAILED]))
    def store_homes(self, number: int, state: JobState) -> None:
        self.node(number).store_homes(state)

    @rule(number=index)
    def resume(self, number: int) -> None:
        if session := self.session(number, [Status.STOPPING, Status.STOPPED]):
            with contextlib.suppress(Conflict):
                resume_session(self.cast.alice, session, now=self.platform.now)

    @rule(number=index, hour=st.integers(0, 23))
    def stop_daily(self, number: int, hour: int) -> None:
        if session := self.session(number):
            times = DailyTimes(time(hour), time((hour + 1) % 24), False, "UTC")
            with contextlib.suppress(Conflict):
                set_schedule(self.cast.alice, session, times, now=self.platform.now)

    @rule()
    def schedule(self) -> None:
        loops.run_pass(self.platform.now)

    @rule()
    def repair(self) -> None:
        loops.run_repair(self.platform.now)

    @rule()
    def another_scheduler_looks(self) -> None:
        self.old_picture = [(group, read_snapshot(group, self.platform.now)) for group in ResourceGroup.objects.all()]

    @rule()
    def another_scheduler_acts_late(self) -> None:
        for group, snapshot in self.old_picture:
            apply_plan(group, decide(snapshot), now=self.platform.now)

    @rule(number=index, which=index)
    def an_old_report_arrives_again(self, number: int, which: int) -> None:
        node = self.node(number)
        if node.portal.reports and not node.portal.cut:
            report = node.portal.reports[which % len(node.portal.reports)]
            with contextlib.suppress(NotFound):
                kernel_reported(Agent.objects.get(pk=node.agent.pk), report)

    @rule(number=index)
    def sync(self, number: int) -> None:
        self.node(number).sync()

    @rule(number=index, twice=st.booleans())
    def deliver(self, number: int, twice: bool) -> None:
        self.platform.deliver(number, keep=twice)

    @rule(number=index)
    def drop(self, number: int) -> None:
        if self.platform.hints:
            self.platform.hints.pop(number % len(self.platform.hints))

    @rule(number=index, fault=st.sampled_from(ENGINE_FAULTS))
    def engine_fault(self, number: int, fault: str) -> None:
        self.node(number).engine.faults.start = fault

    @rule(number=index, fault=st.sampled_from(["lost-before", "lost-after", "crash-after"]))
    def network_fault(self, number: int, fault: str) -> None:
        self.node(number).engine.faults.portal = fault

    @rule(number=index)
    def node_process_is_killed(self, number: int) -> None:
        self.node(number).restart()

    @rule(number=index)
    def cable(self, number: int) -> None:
        portal = self.node(number).portal
        portal.cut = not portal.cut

    @rule()
    def door(self) -> None:
        self.platform.is_door_open = not self.platform.is_door_open
        for node in self.platform.nodes:
            node.portal.cut = not self.platform.is_door_open

    @rule(number=index, which=index, code=st.sampled_from([0, 1, 137]))
    def container_exits(self, number: int, which: int, code: int) -> None:
        running = [one for one in self.node(number).engine.containers.values() if one.running]
        if running:
            one = running[which % len(running)]
            one.running, one.exit_code = False, code

    @rule(number=index, which=index)
    def container_vanishes(self, number: int, which: int) -> None:
        containers = self.node(number).engine.containers
        if containers:
            containers.pop(list(containers)[which % len(containers)])

    @rule(seconds=st.sampled_from([1, 5, 70, 200, 400]))
    def time_passes(self, seconds: int) -> None:
        self.platform.now += timedelta(seconds=seconds)

    @invariant()
    def what_must_hold_holds(self) -> None:
        assert run_checks(World(self.platform.now, self.platform.containers()), SAFETY) == {}
        assert not UnknownKernel.objects.exists(), "without a restore nothing is unknown"

    def teardown(self) -> None:
        try:
            self.platform.settle()
            assert run_checks(World(self.platform.now, self.platform.containers())) == {}
            on_the_way = LIVE - UNPLACED - {Status.RUNNING}
            assert not ComputeSession.objects.filter(status__in=on_the_way).exists()
            for run in Run.objects.filter(ended_at=None):
                with contextlib.suppress(Conflict):
                    cancel_run(run, self.cast.dana, now=self.platform.now)
            for session in ComputeSession.objects.filter(status__in=LIVE):
                terminate_session(session, self.cast.dana)
            self.platform.settle()
            assert not ComputeSession.objects.exclude(status__in=TERMINAL).exists()
            assert not Allocation.objects.exists()
            assert not Run.objects.filter(ended_at=None).exists()
            assert self.platform.containers() == []
        finally:
            for patch in self.patches:
                patch.stop()


@pytest.mark.django_db(transaction=True)
@pytest.mark.timeout(1200)
def test_nothing_is_lost_doubled_or_leaked_whatever_happens() -> None:
    size = settings(
        max_examples=60 if LONG else WALKS,  # 3 s each, 9 s on a busy machine
        stateful_step_count=60 if LONG else 30,
        deadline=None,
        suppress_health_check=list(HealthCheck),
        print_blob=True,
        database=None,
        phases=list(Phase) if LONG else [Phase.explicit, Phase.generate],  # shrinking takes minutes
        report_multiple_bugs=False,
    )
    run_state_machine_as_test(WholePlatform, settings=size)
