"""Roles that start after others, that are ready when a program listens, and whose end is the end of the session."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.utils import timezone

from backendai.base.core.errors import NotFound, UserError
from backendai.base.wire.messages import KernelState
from backendai.domain.cluster.models import Agent
from backendai.domain.compute.auditing import World, run_checks
from backendai.domain.compute.models import ComputeSession, Kernel
from backendai.domain.compute.services.agents.kernel_specs import spec_for
from backendai.domain.compute.services.agents.node_view import WorkRequest, has_work, work_for_each
from backendai.domain.compute.services.life.reports import kernel_reported
from backendai.domain.compute.spec import RoleSpec
from backendai.domain.compute.status import Status
from backendai.portal.loops.repair.overdue_starts import end_starts
from tests.cast import Cast
from tests.factories import make_agent, make_session, place, report_of

pytestmark = [pytest.mark.django_db, pytest.mark.postgres]
DASK = {
    "scheduler": RoleSpec(ready={"tcp": 8786}),
    "worker": RoleSpec(count=2, after=["scheduler"]),
}


def placed(cast: Cast, roles: dict[str, RoleSpec], **over: Any) -> tuple[Agent, ComputeSession, dict[str, Kernel]]:
    agent = make_agent(cpu=8, mem="8g")
    session = make_session(cast.alice, roles=roles, **over)
    place(session, agent)
    return agent, session, by_host(session)


def by_host(session: ComputeSession) -> dict[str, Kernel]:
    session.refresh_from_db()
    return {kernel.hostname: kernel for kernel in session.kernels.all()}


def run(agent: Agent, *kernels: Kernel) -> None:
    for kernel in kernels:
        assert kernel_reported(agent, report_of(kernel, KernelState.RUNNING, container_id="c"))


def finish(agent: Agent, kernel: Kernel, code: int = 0) -> None:
    kernel_reported(agent, report_of(kernel, KernelState.TERMINATED, exit_code=code, reason="exited"))


def violations() -> dict[str, list[str]]:
    return run_checks(World(timezone.now()), ("I-02", "I-03", "I-05", "I-07", "I-08"))


def told_to_start(agent: Agent) -> set[str]:
    return {spec.hostname for spec in work_for_each([WorkRequest(agent)])[0].start}


def test_a_role_is_started_when_those_before_it_are_ready(cast: Cast) -> None:
    agent, session, kernels = placed(cast, DASK)
    assert told_to_start(agent) == {"main1", "scheduler1"}
    with pytest.raises(NotFound):
        spec_for(agent, kernels["worker1"].pk)
    run(agent, kernels["main1"])
    assert told_to_start(agent) == {"scheduler1"} and by_host(session)["worker1"].is_held
    run(agent, kernels["scheduler1"])
    assert told_to_start(agent) == {"worker1", "worker2"} and has_work(agent.pk)
    run(agent, kernels["worker1"], kernels["worker2"])
    assert by_host(session) and session.status == Status.RUNNING
    assert violations() == {}


def test_the_agent_is_told_when_a_kernel_is_ready(cast: Cast) -> None:
    agent, _, kernels = placed(cast, DASK)
    check = spec_for(agent, kernels["scheduler1"].pk).ready
    assert check is not None and (check.tcp, check.within) == (8786, 60)
    assert spec_for(agent, kernels["main1"].pk).ready is None


def test_a_held_kernel_has_its_whole_time_for_the_start_when_its_turn_comes(cast: Cast) -> None:
    agent, session, kernels = placed(cast, DASK)
    run(agent, kernels["main1"])
    long_ago = timezone.now() - timedelta(hours=1)
    Kernel.objects.filter(is_held=True).update(changed_at=long_ago)
    Kernel.objects.filter(pk=kernels["scheduler1"].pk).update(changed_at=timezone.now())
    assert end_starts(timezone.now()) == 0
    run(agent, kernels["scheduler1"])
    assert by_host(session)["worker1"].changed_at > long_ago + timedelta(minutes=59)


def test_a_start_that_fails_brings_the_whole_session_back_to_the_queue_with_its_order(cast: Cast) -> None:
    agent, session, kernels = placed(cast, DASK)
    run(agent, kernels["main1"], kernels["scheduler1"])
    worker = kernels["worker1"]
    kernel_reported(agent, report_of(worker, KernelState.TERMINATED, reason="failed-to-start"))
    for name in ("main1", "scheduler1", "worker2"):
        kernel_reported(agent, report_of(kernels[name], KernelState.TERMINATED))
    found = by_host(session)
    assert session.status == Status.PENDING
    assert {name for name, kernel in found.items() if kernel.is_held} == {"worker1", "worker2"}
    assert violations() == {}


def test_a_session_that_ends_before_the_turn_of_a_kernel_never_starts_it(cast: Cast) -> None:
    agent, session, kernels = placed(cast, DASK, session_type="batch", startup_command="true")
    run(agent, kernels["main1"])
    finish(agent, kernels["main1"])
    finish(agent, kernels["scheduler1"])
    stops = {one.kernel_id for one in work_for_each([WorkRequest(agent)])[0].stop}
    assert stops == {kernels["worker1"].pk, kernels["worker2"].pk}
    for name in ("worker1", "worker2"):
        kernel_reported(agent, report_of(kernels[name], KernelState.TERMINATED))
    by_host(session)
    assert (session.status, session.result) == (Status.TERMINATED, "SUCCESS") and violations() == {}


@pytest.mark.parametrize(("done_when", "last"), [("worker", "worker2"), ("all", "main1")])
def test_a_session_is_done_when_the_named_kernels_have_finished(cast: Cast, done_when: str, last: str) -> None:
    roles = {"worker": RoleSpec(count=2)}
    over = {"session_type": "batch", "startup_command": "true", "done_when": done_when}
    agent, session, kernels = placed(cast, roles, **over)
    run(agent, *kernels.values())
    for name in sorted(set(kernels) - {last} - ({"main1"} if done_when == "worker" else set())):
        finish(agent, kernels[name])
        assert by_host(session) and session.status == Status.RUNNING, name
    finish(agent, kernels[last])
    left = [kernel for kernel in by_host(session).values() if kernel.status == Status.TERMINATING]
    assert [kernel.hostname for kernel in left] == (["main1"] if done_when == "worker" else [])
    for kernel in left:
        kernel_reported(agent, report_of(kernel, KernelState.TERMINATED))
    by_host(session)
    assert (session.status, session.result) == (Status.TERMINATED, "SUCCESS") and violations() == {}


@pytest.mark.parametrize(
    ("over", "commands"),
    [
        ({"cluster_size": 3}, {"main1": "mpirun a", "sub1": "", "sub2": ""}),
        ({"roles": {"worker": RoleSpec()}}, {"main1": "mpirun a", "worker1": ""}),
        ({"roles": {"watch": RoleSpec(startup_command="w")}}, {"main1": "mpirun a", "watch1": "w"}),
    ],
)
def test_a_command_of_the_main_kernel_starts_when_the_others_run(
    cast: Cast, over: dict[str, Any], commands: dict[str, str]
) -> None:
    wish = {"session_type": "batch", "startup_command": "mpirun a", "command_in": "main"}
    agent, session, kernels = placed(cast, over.pop("roles", {}), **wish, **over)
    ran = {spec.hostname: spec.command for spec in work_for_each([WorkRequest(agent)])[0].start}
    others = commands.keys() - {"main1"}
    assert ran == {name: commands[name] or "exec sleep infinity" for name in others}
    run(agent, *(kernels[name] for name in others))
    assert told_to_start(agent) == {"main1"} and spec_for(agent, kernels["main1"].pk).command == "mpirun a"
    run(agent, kernels["main1"])
    finish(agent, kernels["main1"])
    for name in others:
        kernel_reported(agent, report_of(kernels[name], KernelState.TERMINATED))
    by_host(session)
    assert (session.status, session.result) == (Status.TERMINATED, "SUCCESS") and violations() == {}


def test_roles_with_an_order_keep_it_where_only_the_main_kernel_runs_the_command(cast: Cast) -> None:
    roles = {"worker": RoleSpec(), "watch": RoleSpec(after=["main"]), "main": RoleSpec(after=["worker"])}
    wish = {"session_type": "batch", "startup_command": "mpirun a", "command_in": "main"}
    agent, _session, kernels = placed(cast, roles, **wish)
    assert told_to_start(agent) == {"worker1"}
    run(agent, kernels["worker1"])
    assert told_to_start(agent) == {"main1"}


def test_a_session_starts_again_while_its_other_kernels_only_wait_for_the_command(cast: Cast) -> None:
    wish = {"session_type": "batch", "startup_command": "mpirun a", "command_in": "main"}
    agent, session, kernels = placed(cast, {}, cluster_size=3, **wish)
    run(agent, kernels["sub1"], kernels["sub2"])
    kernel_reported(agent, report_of(kernels["main1"], KernelState.TERMINATED, reason="engine-unreachable"))
    for name in ("sub1", "sub2"):
        kernel_reported(agent, report_of(kernels[name], KernelState.TERMINATED))
    by_host(session)
    assert (session.status, session.retries) == (Status.PENDING, 1) and violations() == {}


def test_a_failure_ends_a_session_that_waits_for_all(cast: Cast) -> None:
    over = {"session_type": "batch", "startup_command": "true", "done_when": "all"}
    agent, session, kernels = placed(cast, {"worker": RoleSpec(count=2)}, **over)
    run(agent, *kernels.values())
    finish(agent, kernels["main1"])
    finish(agent, kernels["worker1"], code=3)
    by_host(session)
    assert (session.status, session.result, session.status_reason) == (Status.TERMINATING, "FAILED", "task-failed")


_IN_MAIN = {"session_type": "batch", "startup_command": "mpirun a", "command_in": "main"}


@pytest.mark.parametrize(
    ("roles", "over", "field", "code"),
    [
        ({"worker": RoleSpec(after=["sheduler"])}, {}, "roles.worker.after", "unknown-role"),
        ({"worker": RoleSpec(after=["worker"])}, {}, "roles.worker.after", "unknown-role"),
        ({"a": RoleSpec(after=["b"]), "b": RoleSpec(after=["a"])}, {}, "roles.", "circular-roles"),
        ({"a": RoleSpec(ready={"tcp": 0})}, {}, "roles.a.ready.tcp", "invalid-number"),
        ({"a": RoleSpec(ready={"tpc": 1})}, {}, "roles.a.ready.tpc", "unknown-field"),
        ({"a": RoleSpec(ready={"tcp": 80, "within": 1000})}, {}, "roles.a.ready.within", "invalid-number"),
        ({"a": RoleSpec()}, {"done_when": "a"}, "done_when", "batch-only"),
        ({}, {"command_in": "main", "cluster_size": 2}, "command_in", "batch-only"),
        (
            {},
            {"command_in": "sub", "session_type": "batch", "startup_command": "x"},
            "command_in",
            "invalid-command-in",
        ),
        ({"a": RoleSpec()}, {"done_when": "b", "session_type": "batch", "startup_command": "x"}, "done_when", ""),
        ({"a": RoleSpec()}, {**_IN_MAIN, "done_when": "all"}, "done_when", "never-done"),
        ({"a": RoleSpec()}, {**_IN_MAIN, "done_when": "a"}, "done_when", "never-done"),
        ({}, {**_IN_MAIN, "cluster_size": 2, "done_when": "sub"}, "done_when", "never-done"),
    ],
)
def test_an_order_that_cannot_be_is_refused(
    cast: Cast, roles: dict[str, RoleSpec], over: dict[str, Any], field: str, code: str
) -> None:
    with pytest.raises(UserError) as refused:
        make_session(cast.alice, roles=roles, **over)
    assert refused.value.field and refused.value.field.startswith(field)
    assert refused.value.code == (code or "unknown-role")
    assert not ComputeSession.objects.exists()
