"""Making images of kernels, as the node does it."""

from __future__ import annotations

from uuid import UUID, uuid4

import pytest

from backendai.agent.backends.base import BackendError
from backendai.agent.jobs.kinds import CommitHandler
from backendai.agent.jobs.running import NodeJobs
from backendai.base.wire.images import COMMIT, CommitSpec, RegistryAccess
from backendai.base.wire.node_jobs import JobState, NodeJobOrder, NodeJobSpec
from tests.agent.memory_backend import Entry
from tests.agent.node import Node
from tests.patience import until

ACCOUNT = RegistryAccess(username="robot", password="correct horse")


class SavingNode(Node):
    """A node with one kernel, of which its portal wants images; a test plays the hint."""

    def __init__(self) -> None:
        super().__init__()
        self.changes: list[bool] = []
        self.kernel_id = uuid4()
        self.backend.entries[self.kernel_id] = Entry(1)
        self.jobs = NodeJobs([CommitHandler(self.backend, lambda: self.changes.append(True))], self.portal, self.lanes)

    def want(self, **over: object) -> UUID:
        commit_id = uuid4()
        fields = {"kernel_id": self.kernel_id, "generation": 1, "reference": "lab/own:1-customized_1"}
        work = CommitSpec.model_validate({"access": ACCOUNT, **fields, **over}).model_dump(mode="json")
        self.portal.jobs[commit_id] = NodeJobSpec(kind=COMMIT, job_id=commit_id, work=work)
        return commit_id

    def begin(self, commit_id: UUID) -> None:
        self.jobs.begin_soon(NodeJobOrder(kind=COMMIT, job_id=commit_id))

    def states(self) -> list[str]:
        running = JobState.RUNNING
        return [
            report.phase if report.phase and report.state == running else report.state.value
            for report in self.portal.job_reports
        ]


def test_an_image_is_made_once_however_often_it_is_named_and_goes_to_the_registry_when_it_should() -> None:
    node = SavingNode()
    commit_id = node.want()
    for _ in range(3):  # a hint, a sync, another sync
        node.begin(commit_id)
    node.settle()
    assert (node.states(), node.backend.said.count("commit")) == (["RUNNING", "DONE"], 1)
    assert node.portal.job_reports[-1].result["size_bytes"] == 1000 and node.changes
    node.begin(commit_id)
    node.begin(node.want(push=True))
    node.settle()
    assert node.states()[2:] == ["RUNNING", "push", "DONE"]
    assert (node.backend.accounts, str(node.portal.job_reports[-1].result["digest"])[:8]) == (["robot"], "sha256:d")


def test_a_failure_is_told_and_leaves_nothing_and_silence_of_the_engine_is_no_verdict() -> None:
    node = SavingNode()
    node.begin(node.want(kernel_id=uuid4()))
    node.settle()
    assert (node.states()[-1], node.backend.said[-1]) == ("FAILED", "drop")
    assert node.portal.job_reports[-1].message == "The session ended before the image was created."
    node.backend.failure = BackendError("no answer", code="engine-unreachable")
    commit_id = node.want()
    node.begin(commit_id)
    node.settle()
    assert node.states()[-1] == "RUNNING" and commit_id in node.portal.jobs, "the next sync names it again"


@pytest.mark.parametrize("when", ["pushed", "made"])
def test_what_nobody_wants_any_more_is_removed_at_once(when: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("backendai.agent.jobs.running._SPEAK_SECONDS", 0.0)
    node = SavingNode()
    node.backend.pull_gate.clear()
    commit_id = node.want(push=True)
    if when == "made":
        node.backend.pull_gate.set()
        monkeypatch.setattr(node.backend, "push_image", lambda spec, progress: node.portal.jobs.clear() or "")
    node.begin(commit_id)
    if when == "pushed":
        until(lambda: any(report.progress == 0.5 for report in node.portal.job_reports))
        del node.portal.jobs[commit_id]
    node.settle()
    assert node.backend.said[-1] == "drop" and node.backend.pulled == {"python"}


def test_a_node_that_stops_gives_up_a_push_and_begins_anew_later(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("backendai.agent.jobs.running._SPEAK_SECONDS", 0.0)
    node = SavingNode()
    node.backend.pull_gate.clear()
    commit_id = node.want(push=True)
    node.begin(commit_id)
    until(lambda: "push" in node.backend.said)
    node.jobs.drain()
    node.settle()
    assert "DONE" not in node.states() and commit_id in node.portal.jobs
    assert "drop" not in node.backend.said, "the next start of the agent finds it"
