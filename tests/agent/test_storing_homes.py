"""Storing the home of a kernel as a job: told, given up, begun again, and no kernel stays frozen."""

from __future__ import annotations

from typing import Any
from uuid import UUID, uuid4

import pytest

from backendai.agent.backends.base import BackendError
from backendai.agent.jobs.kinds import StoreHomeHandler
from backendai.agent.jobs.running import NodeJobs
from backendai.agent.loop.machine import capabilities_of
from backendai.base.core.messages import Message
from backendai.base.wire.homes import STORE, StoredHome, StoreResult, StoreWork
from backendai.base.wire.node_jobs import NodeJobOrder, NodeJobSpec
from tests.agent.memory_backend import MemoryBackend
from tests.agent.node import Node
from tests.agent.portal import FakePortal
from tests.agent.specs import make_spec
from tests.patience import until

PLACE = StoredHome(host="local", folder_id=uuid4(), folder_name="homes", file="home-main1.tar")


class StoringNode(Node):
    """A node with one running kernel, whose home its portal wants; a test plays the hint."""

    def __init__(self, portal: FakePortal | None = None, backend: MemoryBackend | None = None) -> None:
        super().__init__(portal, backend)
        self.jobs = NodeJobs([StoreHomeHandler(self.backend, lambda: None)], self.portal, self.lanes)

    def launch(self) -> UUID:
        spec = self.portal.want(make_spec(image="python", agent="n1"))
        for _ in range(2):
            self.sync()
        assert self.portal.status[spec.kernel_id] == "RUNNING"
        self.backend.said.clear()
        return spec.kernel_id

    def want(self, kernel_id: UUID, generation: int = 1, grace: float | None = None) -> UUID:
        work = StoreWork(kernel_id=kernel_id, generation=generation, home=PLACE, timeout=60.0, grace=grace)
        job_id = uuid4()
        self.portal.jobs[job_id] = NodeJobSpec(kind=STORE, job_id=job_id, work=work.model_dump(mode="json"))
        return job_id

    def begin(self, job_id: UUID) -> None:
        self.jobs.begin_soon(NodeJobOrder(kind=STORE, job_id=job_id))

    def acts(self) -> list[str]:
        return [word for word in self.backend.said if not word.startswith("report")]


def test_a_stored_kernel_stays_frozen_until_the_portal_ends_it() -> None:
    node = StoringNode()
    kernel_id = node.launch()
    node.begin(node.want(kernel_id))
    node.settle()
    report = node.portal.job_reports[-1]
    assert (report.state, StoreResult.model_validate(report.result)) == (
        "DONE",
        StoreResult(size_bytes=2048, entries=3),
    )
    assert node.acts() == ["freeze", "store"] and node.backend.entries[kernel_id].frozen
    node.portal.terminate(kernel_id)
    for _ in range(2):
        node.sync()
    assert "thaw" not in node.backend.said and node.acts()[2:] == ["stop", "log", "remove"]
    assert {"homes", f"job.{STORE}"} <= capabilities_of(node.backend)


@pytest.mark.parametrize("is_next_agent", [False, True])
def test_a_program_that_has_ended_for_the_stop_keeps_its_kernel_until_the_home_is_stored(is_next_agent: bool) -> None:
    node = StoringNode()
    kernel_id = node.launch()
    job_id = node.want(kernel_id, grace=20.0)
    if is_next_agent:
        node.backend.stop(kernel_id, grace=20.0)
        node = StoringNode(node.portal, node.backend)
    node.begin(job_id)
    node.settle()
    assert node.portal.job_reports[-1].state == "DONE" and node.acts() == ["stop", "store"]
    assert any("20 s to save" in report.message for report in node.portal.job_reports) != is_next_agent


@pytest.mark.parametrize("code", [0, 1])
def test_a_program_that_ends_by_itself_is_left_to_the_report_of_its_end(code: int) -> None:
    node = StoringNode()
    kernel_id = node.launch()
    node.backend.exit(kernel_id, code)
    node.begin(node.want(kernel_id, grace=20.0))
    node.settle()
    assert {report.state for report in node.portal.job_reports} == {"RUNNING"}
    assert "store" not in node.backend.said and "stop" not in node.backend.said


@pytest.mark.parametrize("over", [{"generation": 2}, {"kernel_id": uuid4()}])
def test_a_kernel_that_is_not_here_is_not_frozen(over: dict[str, Any]) -> None:
    node = StoringNode()
    node.begin(node.want(**{"kernel_id": node.launch()} | over))
    node.settle()
    assert node.portal.job_reports[-1].message == "The session ended before its home was stored."
    assert "freeze" not in node.backend.said and "store" not in node.backend.said


def test_after_a_failure_the_kernel_goes_on_and_the_portal_hears_why() -> None:
    node = StoringNode()
    kernel_id = node.launch()
    fault = BackendError(Message("Folder {name} takes no more.", name="homes"), code="home-too-large")
    node.backend.store_home = lambda *_: (_ for _ in ()).throw(fault)  # type: ignore[method-assign]
    node.begin(node.want(kernel_id))
    node.settle()
    assert node.portal.job_reports[-1].state == "FAILED"
    assert node.portal.job_reports[-1].message == "Folder homes takes no more."
    assert not node.backend.entries[kernel_id].frozen and node.acts() == ["freeze", "thaw", "thaw", "drop"]


@pytest.mark.parametrize("why", ["cancelled", "drained", "cancelled late"])
def test_a_job_that_is_given_up_lets_the_kernel_go_on(why: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("backendai.agent.jobs.running._SPEAK_SECONDS", 0.0)
    node = StoringNode()
    kernel_id = node.launch()
    node.backend.pull_gate.clear()
    job_id = node.want(kernel_id)
    node.begin(job_id)
    until(lambda: any(report.message == "half of it" for report in node.portal.job_reports))
    assert node.backend.entries[kernel_id].frozen
    if why == "drained":
        node.jobs.drain()
    else:
        node.portal.jobs.clear()
        if why == "cancelled late":
            node.backend.pull_gate.set()
    node.settle()
    assert not node.backend.entries[kernel_id].frozen and (job_id in node.portal.jobs) == (why == "drained")
    assert ("drop" in node.backend.said) == (why != "drained")


@pytest.mark.parametrize("is_named", [True, False])
def test_a_killed_agent_leaves_a_frozen_kernel_that_the_next_one_stores_or_thaws(is_named: bool) -> None:
    node = StoringNode()
    kernel_id = node.launch()
    job_id = node.want(kernel_id)
    node.backend.freeze(kernel_id)
    later = StoringNode(node.portal, node.backend)
    if not is_named:
        node.portal.jobs.clear()
    later.sync()
    assert node.backend.entries[kernel_id].frozen
    if is_named:
        later.begin(job_id)
        later.settle()
        assert node.portal.job_reports[-1].state == "DONE" and node.backend.entries[kernel_id].frozen
    else:
        later.sync()
        assert not node.backend.entries[kernel_id].frozen
