"""Fetching images ahead of time, as the node does it."""

from __future__ import annotations

from uuid import UUID, uuid4

from backendai.agent.backends.base import BackendError
from backendai.agent.job_kinds.pull import Handler
from backendai.agent.jobs.running import NodeJobs
from backendai.wire.node_jobs import NodeJobOrder, NodeJobSpec
from backendai.wire.pulls import PULL, PullWork, RegistryAccess
from tests.agent.node import Node
from tests.patience import until

ACCOUNT = RegistryAccess(username="robot", password="correct horse")


class PullingNode(Node):
    """A node that fetches what its portal wants; a test plays the hint."""

    def __init__(self) -> None:
        super().__init__()
        self.announced: list[bool] = []
        self.jobs = NodeJobs([Handler(self.backend, lambda: self.announced.append(True))], self.portal, self.lanes)

    def want(self, image: str = "big", digest: str = "") -> UUID:
        pull_id = uuid4()
        work = PullWork(image=image, digest=digest, access=ACCOUNT).model_dump()
        self.portal.jobs[pull_id] = NodeJobSpec(kind=PULL, job_id=pull_id, work=work)
        return pull_id

    def begin(self, pull_id: UUID) -> None:
        self.jobs.begin_soon(NodeJobOrder(kind=PULL, job_id=pull_id))

    def states(self) -> list[str]:
        return [report.state.value for report in self.portal.job_reports]


def test_it_fetches_with_the_account_it_is_given_and_tells_the_end_once() -> None:
    node = PullingNode()
    pull_id = node.want()
    for _ in range(3):  # a hint, a sync, another sync
        node.begin(pull_id)
    node.settle()
    assert node.states() == ["RUNNING", "DONE"]
    assert (node.backend.pulled, node.backend.accounts, node.announced) == ({"python", "big"}, ["robot"], [True])
    node.begin(pull_id)
    node.settle()
    assert node.backend.said.count("pull") == 1, "what the portal does not want any more is not fetched"


def test_an_exact_image_that_is_there_is_not_fetched_again() -> None:
    node = PullingNode()
    digest = "sha256:" + "a" * 64
    node.backend.pulled.add(f"big@{digest}")
    node.begin(node.want(digest=digest))
    node.settle()
    assert (node.states(), node.backend.accounts) == (["RUNNING", "DONE"], [])
    assert node.portal.job_reports[-1].message == "It was there already."


def test_a_failure_is_told_with_its_words_and_silence_of_the_engine_is_no_verdict() -> None:
    node = PullingNode()
    node.begin(node.want("nowhere"))
    node.settle()
    assert (node.states()[-1], node.portal.job_reports[-1].message) == ("FAILED", "nowhere is nowhere.")

    def silent(reference: str, **_: object) -> None:
        raise BackendError("no answer", code="engine-unreachable")

    node.backend.pull = silent  # type: ignore[assignment,method-assign]
    pull_id = node.want()
    node.begin(pull_id)
    node.settle()
    assert node.states() == ["RUNNING", "FAILED", "RUNNING"]
    assert pull_id in node.portal.jobs, "the next sync names it again"


def test_a_pull_that_is_cancelled_stops_and_one_on_a_node_that_ends_begins_anew_later(monkeypatch) -> None:
    monkeypatch.setattr("backendai.agent.jobs.running._SPEAK_SECONDS", 0.0)
    node = PullingNode()
    node.backend.pull_gate.clear()
    pull_id = node.want()
    node.begin(pull_id)
    until(lambda: any(report.progress == 0.5 for report in node.portal.job_reports))
    del node.portal.jobs[pull_id]
    node.settle()
    assert node.backend.pulled == {"python"}
    other = node.want()
    node.begin(other)
    until(lambda: node.backend.said.count("pull") == 2)
    node.jobs.drain()
    node.settle()
    assert "DONE" not in node.states() and other in node.portal.jobs
    node.begin(other)
    node.settle()
    assert node.backend.said.count("pull") == 2
