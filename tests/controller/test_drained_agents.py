"""Emptying agents, giving them up for good, moving them; and batch sessions that run again when theirs is lost."""

from __future__ import annotations

import pytest
from django.utils import timezone

from backendai.base.core.errors import Conflict, UserError
from backendai.base.wire.messages import KernelSighting, KernelState
from backendai.domain.cluster.models import Agent
from backendai.domain.cluster.services import record_sync
from backendai.domain.compute.auditing import World
from backendai.domain.compute.models import Allocation, ComputeSession, SchedulingRecord
from backendai.domain.compute.services.agents.node_view import work_for
from backendai.domain.compute.services.life.draining import cancel_drain, move_agent, start_drain
from backendai.domain.compute.services.life.reports import kernel_reported
from backendai.domain.compute.services.life.retiring import retire_agent
from backendai.domain.compute.services.placing.place import Assignment, place_sessions
from backendai.domain.compute.status import Status
from backendai.ops.management.commands.audit import run_checks
from backendai.portal.loops.loops import run_pass
from tests.cast import Cast
from tests.controller.clocks import later, only_kernel, repair_at, sync_of
from tests.factories import make_agent, make_group, make_running_session, make_session, place, report_of

pytestmark = pytest.mark.django_db
BATCH = {"session_type": "batch", "startup_command": "train"}


def state(session: ComputeSession) -> tuple[str, str]:
    session.refresh_from_db()
    return session.status, session.status_reason


def lost(agent: Agent) -> None:
    """Let the agent be silent until its group's grace is over."""
    repair_at(later(minutes=2), silent=(agent,))
    repair_at(later(minutes=8), silent=(agent,))


def sound() -> bool:
    names = ["I-01", "I-02", "I-03", "I-05", "I-07", "I-08"]
    return run_checks(World(now=timezone.now()), names) == {}


def test_a_drained_agent_takes_nothing_new_and_what_runs_goes_on(cast: Cast) -> None:
    agent = make_agent()
    session = make_running_session(cast.alice, agent)
    assert start_drain(cast.dana, agent, now=timezone.now()) == 1
    assert (agent.status, agent.drain_kernels) == (Agent.Status.DRAINING, 1)
    make_session(cast.bob)
    record_sync(agent, sync_of(), now=timezone.now())  # the node itself says that it is well
    assert run_pass(timezone.now()) == 0
    repair_at(later(days=30))
    assert state(session)[0] == Status.RUNNING
    message = SchedulingRecord.objects.get(session=session, error_code="agent-draining").message
    assert message.startswith(f"Agent {agent.name} is being drained.")
    cancel_drain(cast.dana, agent)
    record_sync(agent, sync_of(), now=timezone.now())
    assert run_pass(timezone.now()) == 1
    with pytest.raises(Conflict):
        cancel_drain(cast.dana, agent)


def test_a_drain_that_begins_while_the_node_speaks_stands(cast: Cast) -> None:
    agent = make_agent()
    speaking = Agent.objects.get(pk=agent.pk)
    start_drain(cast.dana, agent, now=timezone.now())
    record_sync(speaking, sync_of(), now=timezone.now())
    agent.refresh_from_db()
    assert agent.status == Agent.Status.DRAINING


def test_at_the_deadline_sessions_end_and_what_can_start_elsewhere_does(cast: Cast) -> None:
    agent = make_agent(cpu=8)
    working, batch = make_running_session(cast.alice, agent), make_running_session(cast.alice, agent, **BATCH)
    again = make_running_session(cast.alice, agent, **BATCH, retry_on_agent_loss=True)
    starting = make_session(cast.alice)
    place(starting, agent)
    start_drain(cast.dana, agent, now=timezone.now(), ends_at=later(hours=1))
    with pytest.raises(UserError, match="in the past"):
        start_drain(cast.dana, agent, now=timezone.now(), ends_at=later(hours=-1))
    repair_at(later(minutes=59))
    assert [state(one)[0] for one in (working, batch, again)] == ["RUNNING"] * 3
    repair_at(later(minutes=61))
    for one in (working, batch):
        assert state(one) == (Status.TERMINATING, "agent-drained")
    for session in (working, batch, again, starting):
        kernel_reported(agent, report_of(only_kernel(session), KernelState.TERMINATED))
    assert [state(one)[0] for one in (working, batch)] == [Status.TERMINATED] * 2
    for one in (again, starting):
        assert state(one)[0] == Status.PENDING
        assert one.avoid_agents == [str(agent.pk)]
    assert again.started_at is None
    other = make_agent()
    assert run_pass(later(hours=2)) == 2
    assert {only_kernel(one).agent for one in (again, starting)} == {other}
    assert sound()


def test_a_batch_session_that_asked_for_it_runs_again_when_its_agent_is_lost_and_never_twice(cast: Cast) -> None:
    agent = make_agent(cpu=8)
    again = make_running_session(cast.alice, agent, **BATCH, retry_on_agent_loss=True)
    batch, working = make_running_session(cast.alice, agent, **BATCH), make_running_session(cast.alice, agent)
    old = only_kernel(again)
    seen = [KernelSighting(kernel_id=old.pk, generation=old.generation, running=True)]
    lost(agent)
    assert [state(one) for one in (batch, working)] == [(Status.TERMINATING, "agent-lost")] * 2
    assert (state(again)[0], again.retries) == (Status.PENDING, 1)
    other = make_agent()
    assert run_pass(later(minutes=9)) == 1
    kernel = only_kernel(again)
    assert (kernel.agent, kernel.generation) == (other, old.generation + 1)
    agent.refresh_from_db()
    record_sync(agent, sync_of(), now=later(minutes=10))
    answer = work_for(agent, seen, want_images=False)
    assert [one.kernel_id for one in answer.unwanted] == [old.pk], "the old run is removed"
    assert not answer.desired
    assert kernel_reported(other, report_of(kernel, KernelState.RUNNING))
    assert state(again)[0] == Status.RUNNING
    assert sound()


def test_runs_again_only_as_often_as_the_group_tries(cast: Cast) -> None:
    make_group(max_retries=1)
    session = make_running_session(cast.alice, agent := make_agent(), **BATCH, retry_on_agent_loss=True)
    give_up(cast, agent)
    place(session, second := make_agent())
    kernel_reported(second, report_of(only_kernel(session), KernelState.RUNNING))
    give_up(cast, second)
    assert state(session) == (Status.ERROR, "agent-terminated")
    assert sound()


def test_all_kernels_of_a_cluster_have_ended_before_it_runs_again(cast: Cast) -> None:
    session = make_session(cast.alice, **BATCH, retry_on_agent_loss=True, cluster_size=2)
    gone, well = make_agent(cpu=1), make_agent(cpu=1)
    seats = dict(zip(session.kernels.values_list("pk", flat=True), (gone.pk, well.pk), strict=True))
    place_sessions(session.resource_group_id, [Assignment(session.pk, seats)], now=timezone.now())
    for agent in (gone, well):
        kernel_reported(agent, report_of(agent.kernels.get(), KernelState.RUNNING))
    give_up(cast, gone)
    sibling = well.kernels.get()
    assert (state(session)[0], sibling.status) == (Status.RUNNING, Status.TERMINATING)
    kernel_reported(well, report_of(sibling, KernelState.TERMINATED))
    assert state(session)[0] == Status.PENDING
    assert not Allocation.objects.exists()
    assert sound()


def test_an_agent_that_answers_is_emptied_before_it_is_given_up(cast: Cast) -> None:
    agent, empty = make_agent(), make_agent()
    session = make_running_session(cast.alice, agent)
    ending = make_running_session(cast.alice, agent)
    with pytest.raises(Conflict, match="runs 2 kernels: drain it first"):
        retire_agent(cast.dana, agent, now=timezone.now())
    lost(agent)
    assert retire_agent(cast.dana, agent, now=timezone.now()) == 2
    assert state(session) == (Status.ERROR, "agent-lost"), "the first reason of an end stays"
    assert state(ending)[0] == Status.ERROR
    assert not Allocation.objects.exists()
    assert agent.status == Agent.Status.TERMINATED
    assert retire_agent(cast.dana, empty, now=timezone.now()) == 0
    for act in (retire_agent, start_drain):
        with pytest.raises(Conflict, match="removed permanently"):
            act(cast.dana, agent, now=timezone.now())
    assert sound()


def test_an_agent_moves_to_another_group_when_nothing_runs_there_or_by_force(cast: Cast) -> None:
    agent, far = make_agent(), make_group("far")
    session = make_running_session(cast.alice, agent)
    with pytest.raises(Conflict, match="runs 1 kernel: drain it first"):
        move_agent(cast.dana, agent, far)
    move_agent(cast.dana, agent, far, force=True)
    assert (agent.resource_group, state(session)[0]) == (far, Status.RUNNING)
    make_session(cast.bob, resource_group="far")
    assert run_pass(timezone.now()) == 1
    with pytest.raises(Conflict, match="already"):
        move_agent(cast.dana, agent, far)


def test_only_batch_sessions_run_again_by_themselves(cast: Cast) -> None:
    with pytest.raises(UserError) as refused:
        make_session(cast.alice, retry_on_agent_loss=True)
    assert (refused.value.field, refused.value.code) == ("retry_on_agent_loss", "batch-only")


def give_up(cast: Cast, agent: Agent) -> None:
    """Lose the agent, and declare it removed permanently."""
    Agent.objects.filter(pk=agent.pk).update(status=Agent.Status.LOST, lost_at=timezone.now())
    agent.refresh_from_db()
    retire_agent(cast.dana, agent, now=timezone.now())
