"""What can never start is told apart from what only has to wait."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

from hypothesis import given

from backendai.base.core.slots import Slots
from backendai.scheduler.decide import decide
from backendai.scheduler.snapshot import DeviceView
from tests.scheduler.crowds import crowds
from tests.scheduler.test_decide_properties import many
from tests.scheduler.worlds import NOW, a_session, a_snapshot, an_agent

_TOO_BIG = {"bigger-than-any-agent", "bigger-than-all-agents", "too-many-kernels"}


def test_a_session_waits_for_devices_that_others_hold():
    agent = an_agent(has={"cpu": 8, "mem": "8g", "cuda.device": 2}, used={"cuda.device": 1}, devices=gpus(1000, 0))
    wait = decide(a_snapshot([agent], [a_session(asks={"cpu": 1, "mem": "1g", "cuda.device": 2})])).waits[0]
    assert not wait.reason.never
    assert wait.tried


def gpus(*taken: int) -> tuple[DeviceView, ...]:
    return tuple(DeviceView(f"GPU-{number}", "cuda.device", 1000, of) for number, of in enumerate(taken))


@many
@given(crowds())
def test_what_is_called_too_big_for_ever_is_too_big_for_empty_agents(snapshot):
    agents = tuple(
        replace(
            agent,
            occupied=Slots(),
            kernels=0,
            alive=True,
            schedulable=True,
            devices=tuple(replace(device, taken=0) for device in agent.devices),
        )
        for agent in snapshot.agents
    )
    sessions = {session.id: session for session in snapshot.pending}
    for wait in decide(snapshot).waits:
        if wait.reason.code in _TOO_BIG and wait.reason.never:
            alone = replace(snapshot, agents=agents, pending=(sessions[wait.session_id],), limits={}, running=())
            assert decide(alone).placements == ()


def test_a_wait_that_time_ends_does_not_hide_that_the_session_is_too_big():
    huge = a_session(asks={"cpu": 99}, starts_at=NOW + timedelta(hours=1))
    reason = decide(a_snapshot([an_agent()], [huge])).waits[0].reason
    assert (reason.code, reason.never) == ("bigger-than-any-agent", True)


def test_a_drain_does_not_hide_that_no_agent_has_the_image():
    docker, native = an_agent("docker", draining=True, schedulable=False), an_agent("native", is_native=True)
    native = replace(native, draining=True, schedulable=False)
    session = a_session(node_image="lab/python:1")

    def said(*agents):
        return decide(a_snapshot(list(agents), [session])).waits[0].reason

    assert said(native).code == "agents-without-containers"
    assert said(native).message == "Agent native has no containers, which image lab/python:1 needs."
    assert said(docker).code == "image-not-on-agent"
    having = replace(docker, images=frozenset({"lab/python:1"}))
    assert said(having).code == "agent-draining"
    both = said(having, native)
    assert both.code == "agent-draining"
    assert both.message == (
        "Agent docker is being drained and takes no new sessions. "
        "Agent native has no containers, which image lab/python:1 needs."
    )
