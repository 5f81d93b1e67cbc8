"""When one kernel of a session ends: the session ends, goes on without it, or the kernel starts again in its place."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.utils import timezone

from backendai.base.core.errors import UserError
from backendai.base.wire.messages import KernelReport, KernelState
from backendai.domain.cluster.models import Agent
from backendai.domain.compute.auditing import World, run_checks
from backendai.domain.compute.models import Allocation, ComputeSession, Kernel, SchedulingRecord
from backendai.domain.compute.services.agents.kernel_specs import spec_for
from backendai.domain.compute.services.agents.node_view import WorkRequest, has_work, work_for, work_for_each
from backendai.domain.compute.services.life.ending import terminate_session
from backendai.domain.compute.services.life.losses import end_unconfirmed
from backendai.domain.compute.services.life.reports import kernel_reported
from backendai.domain.compute.services.life.restarting import MOST_RESTARTS, wait_before
from backendai.domain.compute.spec import RoleSpec
from backendai.domain.compute.status import Status
from tests.cast import Cast
from tests.controller.clocks import repair_at
from tests.factories import make_agent, make_session, place, report_of

pytestmark = [pytest.mark.django_db, pytest.mark.postgres]
AUDITED = ("I-02", "I-03", "I-05", "I-07", "I-08")


def cluster(cast: Cast, on_failure: str, **over: Any) -> tuple[Agent, ComputeSession, list[Kernel]]:
    """Return a running session of a main kernel and two workers with this policy, on one agent."""
    agent = make_agent(cpu=4, mem="4g")
    session = make_session(cast.alice, **{"roles": {"worker": RoleSpec(count=2, on_failure=on_failure)}} | over)
    place(session, agent)
    for kernel in session.kernels.all():
        kernel_reported(agent, report_of(kernel, KernelState.RUNNING, container_id="c"))
    return agent, *again(session)


def again(session: ComputeSession) -> tuple[ComputeSession, list[Kernel]]:
    found = ComputeSession.objects.get(pk=session.pk)
    return found, list(found.kernels.order_by("rank"))


def fail(agent: Agent, kernel: Kernel, *, code: int = 1, **over: Any) -> bool:
    """Report that the main program of a kernel ended with this code."""
    values = {"exit_code": code, "reason": "exited"} | over
    return kernel_reported(agent, report_of(kernel, KernelState.TERMINATED, **values))


def violations() -> dict[str, list[str]]:
    return run_checks(World(timezone.now()), AUDITED)


def test_by_default_the_first_kernel_that_ends_ends_the_session(cast: Cast) -> None:
    agent, session, kernels = cluster(cast, "")
    fail(agent, kernels[1])
    session, kernels = again(session)
    assert (session.status, kernels[0].status) == (Status.TERMINATING, Status.TERMINATING)
    assert "worker1" in session.status_message


def test_a_session_goes_on_without_a_kernel_that_it_tolerates_to_lose(cast: Cast) -> None:
    agent, session, kernels = cluster(cast, "tolerate", session_type="batch", startup_command="true")
    fail(agent, kernels[1])
    session, kernels = again(session)
    assert [kernel.status for kernel in kernels] == ["RUNNING", "TERMINATED", "RUNNING"]
    assert (session.status, kernels[1].exit_code) == (Status.RUNNING, 1)
    assert Allocation.objects.filter(slot="cpu").count() == 2, "its share is free for others"
    end_unconfirmed(
        Kernel.objects.filter(pk=kernels[2].pk), "agent-lost", lambda name: f"{name} is gone.", now=timezone.now()
    )
    session, kernels = again(session)
    assert session.status == Status.RUNNING, "nor does the loss of an agent end it"
    fail(agent, kernels[0], code=0)
    session, kernels = again(session)
    assert (session.status, session.result) == (Status.TERMINATED, "SUCCESS")
    assert violations() == {}


def test_a_kernel_that_never_ran_is_not_tolerated(cast: Cast) -> None:
    agent = make_agent(cpu=4, mem="4g")
    session = make_session(cast.alice, roles={"worker": RoleSpec(on_failure="tolerate")})
    place(session, agent)
    fail(agent, again(session)[1][1], reason="image-not-found")
    assert again(session)[0].status == Status.TERMINATING


def test_a_kernel_starts_again_in_its_seat_under_a_higher_generation(cast: Cast) -> None:
    agent, session, kernels = cluster(cast, "restart")
    held = set(Allocation.objects.values_list("kernel_id", "agent_id", "slot", "amount"))
    assert fail(agent, kernels[1])
    assert set(Allocation.objects.values_list("kernel_id", "agent_id", "slot", "amount")) == held
    session, (main, worker, _) = again(session)
    assert (session.status, main.status, worker.status) == (Status.RUNNING, Status.RUNNING, Status.SCHEDULED)
    assert (worker.generation, worker.restarts, worker.agent_id) == (2, 1, agent.pk)
    assert (worker.started_at, worker.ended_at, worker.exit_code) == (None, None, None)
    assert spec_for(agent, worker.pk).generation == 2
    assert (worker.pk, 2) in {(one.kernel_id, one.generation) for one in work_for(agent, [], want_images=False).desired}
    late = KernelReport(kernel_id=worker.pk, generation=1, state=KernelState.TERMINATED, exit_code=1, reason="exited")
    assert not kernel_reported(agent, late), "the older generation is not heard any more"
    assert kernel_reported(agent, report_of(worker, KernelState.RUNNING, container_id="d"))
    session, kernels = again(session)
    assert (session.status, kernels[1].status, kernels[1].container_id) == (Status.RUNNING, Status.RUNNING, "d")
    told = SchedulingRecord.objects.filter(session=session, result="NEED_RETRY").get()
    assert "worker1" in told.message and "restart 1 of 3" in told.message
    assert violations() == {}


def test_later_restarts_wait_and_then_the_session_ends(cast: Cast) -> None:
    agent, session, kernels = cluster(cast, "restart")
    for count in range(1, MOST_RESTARTS + 1):
        fail(agent, kernels[1])
        session, kernels = again(session)
        assert (kernels[1].status, kernels[1].restarts) == (Status.SCHEDULED, count)
        assert has_work(agent.pk) is (count == 1), "the first is started at once"
        started = [spec.kernel_id for spec in work_for_each([WorkRequest(agent)])[0].start]
        assert (kernels[1].pk in started) is (count == 1)
        late = Kernel.objects.filter(pk=kernels[1].pk, starts_after__isnull=False)
        late.update(starts_after=timezone.now() - timedelta(seconds=1))
        assert has_work(agent.pk)
        kernel_reported(agent, report_of(kernels[1], KernelState.RUNNING, container_id="c"))
        session, kernels = again(session)
    fail(agent, kernels[1], reason="out-of-memory")
    session, kernels = again(session)
    assert (session.status, session.status_reason) == (Status.TERMINATING, "out-of-memory")
    assert [wait_before(count).total_seconds() for count in (1, 2, 3, 9)] == [0, 4, 8, 60]
    assert violations() == {}


def test_a_kernel_that_ran_for_long_begins_to_count_anew(cast: Cast) -> None:
    agent, session, kernels = cluster(cast, "restart")
    long_ago = timezone.now() - timedelta(hours=1)
    Kernel.objects.filter(pk=kernels[1].pk).update(started_at=long_ago, restarts=MOST_RESTARTS)
    fail(agent, kernels[1])
    assert again(session)[1][1].restarts == 1


@pytest.mark.parametrize("why", ["drained", "lost", "asked", "disappeared"])
def test_a_seat_is_not_taken_again_where_it_should_not(cast: Cast, why: str) -> None:
    agent, session, kernels = cluster(cast, "restart")
    if why == "asked":
        terminate_session(session, cast.alice)
        fail(agent, kernels[1])
    elif why == "lost":
        end_unconfirmed(Kernel.objects.filter(pk=kernels[1].pk), "agent-lost", lambda name: name, now=timezone.now())
    elif why == "drained":
        Agent.objects.update(drain_started_at=timezone.now())
        fail(agent, kernels[1])
    else:
        fail(agent, kernels[1], reason="container-missing")
    session, kernels = again(session)
    assert session.status == Status.TERMINATING
    assert (kernels[1].status, kernels[1].generation) == (Status.TERMINATED, 1)
    assert violations() == {}


def test_a_worker_that_is_done_stays_done_and_a_failed_main_program_runs_again(cast: Cast) -> None:
    roles = {name: RoleSpec(on_failure="restart") for name in ("main", "worker")}
    agent, session, (main, worker) = cluster(cast, "", session_type="batch", startup_command="true", roles=roles)
    fail(agent, worker, code=0)
    fail(agent, main, code=1)
    session, (main, worker) = again(session)
    assert (session.status, main.status, worker.status) == (Status.RUNNING, Status.SCHEDULED, Status.TERMINATED)
    kernel_reported(agent, report_of(main, KernelState.RUNNING))
    fail(agent, again(session)[1][0], code=0)
    session, _ = again(session)
    assert (session.status, session.result) == (Status.TERMINATED, "SUCCESS")


def test_a_restart_that_does_not_come_up_in_its_time_ends_the_session(cast: Cast) -> None:
    agent, session, kernels = cluster(cast, "restart")
    fail(agent, kernels[1])
    now = timezone.now()
    repair_at(now + timedelta(minutes=1))
    assert again(session)[0].status == Status.RUNNING
    repair_at(now + timedelta(minutes=4))
    session, kernels = again(session)
    assert (session.status, kernels[1].status) == (Status.RUNNING, Status.TERMINATING)
    fail(agent, kernels[1])
    session, _ = again(session)
    assert (session.status, session.status_reason) == (Status.TERMINATING, "start-timeout")


@pytest.mark.parametrize(("name", "policy"), [("worker", "sometimes"), ("main", "tolerate")])
def test_a_policy_that_cannot_be_is_refused_at_its_field(cast: Cast, name: str, policy: str) -> None:
    with pytest.raises(UserError) as refused:
        make_session(cast.alice, roles={"worker": RoleSpec(), name: RoleSpec(on_failure=policy)})
    assert (refused.value.field, refused.value.code) == (f"roles.{name}.on_failure", "invalid-on-failure")
