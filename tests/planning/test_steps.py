"""A history row shows each gate by itself, though those that were all passed are stored as one."""

from __future__ import annotations

import pytest
from django.utils import timezone

from backendai.domain.compute.models import SchedulingRecord
from backendai.domain.planning.apply import apply_plan
from backendai.domain.planning.snapshot import read_snapshot
from backendai.domain.planning.steps import shown_steps
from backendai.scheduler.decide import decide
from backendai.scheduler.gates import GATES
from tests.cast import Cast
from tests.factories import make_agent, make_session

pytestmark = pytest.mark.django_db


def test_every_gate_and_filter_of_a_pass_is_a_step_of_its_own(cast: Cast) -> None:
    agent = make_agent(cpu=2)
    starts, waits = (make_session(cast.alice, resources={"cpu": 2, "mem": "1g"}) for _ in range(2))
    now = timezone.now()
    group = agent.resource_group
    apply_plan(group, decide(read_snapshot(group, now=now)), now=now)
    found = {
        each: shown_steps(SchedulingRecord.objects.get(session=each, phase="schedule", sub_steps__0__0="sequencing"))
        for each in (starts, waits)
    }
    gates = [(gate.step, gate.passed) for gate in GATES]
    for session, result in ((starts, "SUCCESS"), (waits, "FAILURE")):
        steps = found[session]
        assert [(step["step"], step["message"]) for step in steps[1 : 1 + len(gates)]] == gates
        assert steps[0]["step"] == "sequencing"
        assert steps[-1]["result"] == result
        assert all(step["started_at"] and step["ended_at"] for step in steps)
    assert found[starts][-1]["step"] == "selection"
    assert found[waits][-1]["error_code"] == "insufficient-resources"


@pytest.mark.parametrize("kept", [["gates", "passed: bygone"], {"step": "gates", "message": "passed: bygone"}])
def test_a_gate_that_is_gone_since_keeps_its_name(kept: object) -> None:
    now = timezone.now()
    record = SchedulingRecord(created_at=now, updated_at=now, sub_steps=[kept])
    assert [(step["step"], step["message"], step["result"]) for step in shown_steps(record)] == [
        ("bygone", "", "SUCCESS")
    ]
