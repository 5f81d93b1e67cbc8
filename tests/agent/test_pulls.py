"""Fetching images ahead of time, as the node does it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit
from uuid import UUID, uuid4

import pytest

from backendai.agent.backends.base import BackendError
from backendai.agent.backends.docker.engine import Engine
from backendai.agent.backends.docker.images import DockerImages
from backendai.agent.jobs.kinds import PullHandler
from backendai.agent.jobs.running import NodeJobs
from backendai.base.wire.images import PULL, PullWork, RegistryAccess
from backendai.base.wire.node_jobs import NodeJobOrder, NodeJobSpec
from tests.agent.node import Node
from tests.agent.portal import make_spec
from tests.patience import patient, until

ACCOUNT = RegistryAccess(username="robot", password="correct horse")


class PullingNode(Node):
    """A node that fetches what its portal wants; a test plays the hint."""

    def __init__(self) -> None:
        super().__init__()
        self.announced: list[bool] = []
        self.jobs = NodeJobs([PullHandler(self.backend, lambda: self.announced.append(True))], self.portal, self.lanes)

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


class SlowEngine(ThreadingHTTPServer):
    """An engine whose registry stalls: nothing comes for ``silent`` images, one message for others, but ``quick`` ones
    come. ``pulling``: the open requests for images, by name."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Answers)
        self.pulling: list[str] = []
        self.here: set[str] = set()
        Thread(target=self.serve_forever, args=(0.02,), daemon=True).start()

    @property
    def url(self) -> str:
        return f"tcp://127.0.0.1:{self.server_address[1]}"


class _Answers(BaseHTTPRequestHandler):
    server: SlowEngine

    def do_GET(self) -> None:
        name = unquote(self.path.partition("/images/")[2].removesuffix("/json")).partition(":")[0]
        is_known = not name or name in self.server.here
        body = json.dumps({"ApiVersion": "1.41", "Id": name, "message": "No such image"}).encode()
        self.send_response(200 if is_known else 404)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_POST(self) -> None:
        name = parse_qs(urlsplit(self.path).query)["fromImage"][0]
        self.server.pulling.append(name)
        if not name.startswith("silent"):
            self.send_response(200)
            self.end_headers()
            self.wfile.write(b'{"status": "Downloading", "id": "a", "progressDetail": {"current": 1, "total": 9}}\r\n')
        if name.startswith("quick"):
            self.server.here.add(name)
        else:
            self.connection.settimeout(patient(30))
            self.connection.recv(1)  # until the agent closes the connection
        self.server.pulling.remove(name)

    def log_message(self, *_: object) -> None: ...


@pytest.fixture
def slow() -> Iterator[SlowEngine]:
    engine = SlowEngine()
    yield engine
    engine.shutdown()
    engine.server_close()


def node_of(slow: SlowEngine) -> PullingNode:
    """Return a node in memory that pulls images with the engine."""
    node, images = PullingNode(), DockerImages(Engine(slow.url, "test", "n1"))

    def pull(reference: str, **options: Any) -> None:
        node.backend.said.append("pull")
        images.pull(reference, **options)
        node.backend.pulled.add(reference)

    node.backend.pull = pull  # type: ignore[method-assign]
    return node


def is_pulling(node: Node, kernel_id: UUID) -> bool:
    holder = node.lanes.holder(kernel_id)
    return holder is not None and holder.is_pulling


def end(node: Node, kernel_id: UUID) -> None:
    if node.portal.states(kernel_id)[-1:] != ["TERMINATED"]:
        node.portal.terminate(kernel_id)
        node.kernels.stop_soon(kernel_id, 1)


@pytest.mark.parametrize("image", ["silent", "stalled"])
def test_ordered_ends_do_not_wait_for_a_registry_that_stalls(slow: SlowEngine, image: str) -> None:
    node = node_of(slow)
    stalled = [node.portal.want(make_spec(image=image)) for _ in range(12)]
    for spec in stalled:
        node.kernels.start_soon(spec.kernel_id, 1)
    until(lambda: len(slow.pulling) == 2 and len(node.portal.fetches) == 12)
    waiting = [spec for spec in stalled if not is_pulling(node, spec.kernel_id)]
    assert len(waiting) == 10
    for spec in waiting:
        end(node, spec.kernel_id)
    until(lambda: all("TERMINATED" in node.portal.states(spec.kernel_id) for spec in waiting))
    assert len(slow.pulling) == 2, "the others go on"
    for spec in stalled:
        end(node, spec.kernel_id)
    quick = node.portal.want(make_spec(image="quick"))
    node.kernels.start_soon(quick.kernel_id, 1)
    until(lambda: node.portal.status[quick.kernel_id] == "RUNNING")
    node.settle()
    assert {node.portal.states(spec.kernel_id)[-1] for spec in stalled} == {"TERMINATED"}
    assert node.backend.said.count("pull") == 3, "those that waited for their turn pulled nothing"
    until(lambda: not slow.pulling, what="the engine is told to give up")


@pytest.mark.parametrize("image", ["silent", "stalled"])
def test_a_cancelled_pull_job_frees_its_turn_though_the_registry_stalls(
    slow: SlowEngine, image: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("backendai.agent.jobs.running._SPEAK_SECONDS", 0.0)
    node = node_of(slow)
    job = node.want(image)
    node.begin(job)
    until(lambda: slow.pulling == [image])
    del node.portal.jobs[job]
    node.settle()
    assert node.states()[-1] == "RUNNING"
    until(lambda: not slow.pulling, what="the engine is told to give up")
