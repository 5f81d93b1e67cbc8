"""What holds for every kind of job on an agent: once, told, given up, in its time."""

from __future__ import annotations

from collections.abc import Callable
from uuid import UUID, uuid4

import pytest
from pydantic import BaseModel

from backendai.agent.backends.base import Fetched
from backendai.agent.jobs.handlers import JobHandler, JobProgress, Outcome
from backendai.agent.jobs.running import NodeJobs
from backendai.base.wire.node_jobs import NodeJobOrder, NodeJobSpec
from tests.agent.node import Node


class Move(BaseModel):
    """Work that must not be done twice."""

    name: str


class Moving(JobHandler):
    """Counts what it did."""

    kind, work, is_repeatable = "test.move", Move, False
    during: Callable[[], None] = staticmethod(lambda: None)
    moved: list[str]
    undone: list[str]

    def run(self, work: Move, progress: JobProgress) -> Outcome:
        self.during()
        progress.heed(Fetched(None, "on its way"))
        self.moved.append(work.name)
        return Outcome("moved")

    def undo(self, work: Move) -> None:
        self.undone.append(work.name)


class MovingNode(Node):
    """A node that knows one kind of job; a test plays the hint."""

    def __init__(self) -> None:
        super().__init__()
        self.handler = Moving(self.backend, lambda: None)
        self.handler.moved, self.handler.undone = [], []
        self.jobs = NodeJobs([self.handler], self.portal, self.lanes)

    def want(self, **over: object) -> UUID:
        job_id = uuid4()
        fields = {"kind": "test.move", "job_id": job_id, "work": {"name": "it"}}
        self.portal.jobs[job_id] = NodeJobSpec.model_validate(fields | over)
        return job_id

    def begin(self, job_id: UUID, kind: str = "test.move") -> None:
        self.jobs.begin_soon(NodeJobOrder(kind=kind, job_id=job_id))
        self.settle()

    def said(self) -> list[tuple[str, str]]:
        return [(report.state.value, report.message) for report in self.portal.job_reports]


def test_an_outcome_that_the_portal_did_not_hear_is_told_again_and_not_worked_out_again() -> None:
    node = MovingNode()
    job_id = node.want()
    node.handler.during = lambda: setattr(node.portal, "down", True)
    node.begin(job_id)
    assert (node.handler.moved, node.said()) == (["it"], [("RUNNING", "The agent begins.")])
    node.portal.down = False
    node.begin(job_id)
    assert (node.handler.moved, node.said()[1:]) == (["it"], [("DONE", "moved")])
    assert node.portal.jobs == {}


def test_outcomes_that_nobody_asks_for_again_make_room_for_newer_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("backendai.agent.jobs.running._MOST_UNTOLD", 1)
    node = MovingNode()
    node.handler.during = lambda: setattr(node.portal, "down", True)
    first, second = node.want(), node.want()
    for job_id in (first, second):
        node.portal.down = False
        node.begin(job_id)
    node.portal.down, node.handler.during = False, lambda: None
    node.begin(second)
    assert (node.handler.moved, node.said()[-1]) == (["it", "it"], ("DONE", "moved"))
    node.begin(first)
    assert node.handler.moved == ["it", "it", "it"], "its outcome was forgotten: it is worked out again"


def test_a_kind_that_cannot_be_repeated_fails_after_the_agent_was_restarted() -> None:
    node = MovingNode()
    node.begin(node.want(has_started=True))
    assert node.said() == [("FAILED", "The agent was restarted while it worked on this.")]
    assert (node.handler.moved, node.handler.undone) == ([], ["it"])


def test_what_it_cannot_read_fails_without_a_quotation_and_a_strange_kind_is_left_alone() -> None:
    node = MovingNode()
    node.begin(node.want(work={"name": ["correct horse"]}))
    ((state, message),) = node.said()
    assert state == "FAILED" and "Update the agent" in message and "correct" not in message
    node.begin(node.want(kind="other"), kind="other")
    assert len(node.said()) == 1


def test_what_takes_too_long_fails_and_leaves_nothing() -> None:
    node = MovingNode()
    node.begin(node.want(seconds=0.0))
    assert node.said()[-1][0] == "FAILED" and node.said()[-1][1].startswith("It took longer than")
    assert (node.handler.moved, node.handler.undone) == ([], ["it"])


@pytest.mark.parametrize("drains", [False, True])
def test_what_is_cancelled_leaves_nothing_and_what_a_stop_breaks_off_is_named_again(drains: bool) -> None:
    node = MovingNode()
    job_id = node.want()
    node.handler.during = node.jobs.drain if drains else node.portal.jobs.clear
    node.jobs._handlers["test.move"] = node.handler
    node.begin(job_id)
    assert (job_id in node.portal.jobs, node.handler.undone) == (drains, [] if drains else ["it"])
    assert ("DONE", "moved") not in node.said() or not drains
