"""The HTTP client of the node API, against a real socket."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator
from threading import Thread
from types import SimpleNamespace
from uuid import uuid4

import pytest

from backendai.agent.portal.client import PortalClient, PortalRefused, PortalUnreachable
from backendai.base.wire.images import PULL, PullWork, RegistryAccess
from backendai.base.wire.messages import KernelReport, KernelState
from backendai.base.wire.node_jobs import JobState, NodeJobReport, NodeJobSpec
from tests.agent.http_portal import NODE_TOKEN, HttpPortal
from tests.agent.memory_backend import MemoryBackend
from tests.agent.node import Node
from tests.agent.portal import make_spec
from tests.patience import patient


@pytest.fixture
def portal() -> Iterator[HttpPortal]:
    portal = HttpPortal()
    yield portal
    portal.close()


def test_it_carries_a_kernel_from_start_to_end_over_http(portal: HttpPortal) -> None:
    node = Node(PortalClient(portal.url, NODE_TOKEN), MemoryBackend(portal.said))
    spec = portal.want(make_spec())
    node.kernels.start_soon(spec.kernel_id, 1)
    node.settle()
    node.sync()
    node.backend.exit(spec.kernel_id, 5)
    node.sync()
    assert portal.states(spec.kernel_id) == ["RUNNING", "TERMINATED"]
    assert portal.logs[spec.kernel_id] == (b"hello\n", False)
    assert portal.said[-3:] == ["log", "report TERMINATED", "remove"]


def test_it_says_none_for_a_spec_that_is_not_wanted(portal: HttpPortal) -> None:
    assert PortalClient(portal.url, NODE_TOKEN).fetch_spec(uuid4()) is None


def test_it_fetches_accounts_and_pulls_and_never_quotes_an_answer_that_holds_a_password(portal: HttpPortal) -> None:
    client = PortalClient(portal.url, NODE_TOKEN)
    portal.access = RegistryAccess(username="robot", password="correct horse")
    assert client.registry_access(uuid4()) == portal.access
    work = PullWork(image="big", access=portal.access).model_dump()
    spec = NodeJobSpec(kind=PULL, job_id=uuid4(), work=work)
    assert client.fetch_job(PULL, spec.job_id) is None
    portal.jobs[spec.job_id] = spec
    assert client.fetch_job(PULL, spec.job_id) == spec and "correct horse" not in repr(spec)
    assert client.report_job(NodeJobReport(kind=PULL, job_id=spec.job_id, state=JobState.RUNNING, progress=0.5))
    assert not client.report_job(NodeJobReport(kind=PULL, job_id=uuid4(), state=JobState.RUNNING))
    portal.broken_secret = '{"username": ["correct horse"]}'
    with pytest.raises(PortalUnreachable) as broken:
        client.registry_access(uuid4())
    assert "correct horse" not in str(broken.value) and broken.value.__cause__ is None
    node = Node(client, MemoryBackend(portal.said))
    portal.broken_secret = ""
    wanted = portal.want(make_spec(image="big"))
    node.kernels.start_soon(wanted.kernel_id, 1)
    node.settle()
    assert (portal.states(wanted.kernel_id)[-1], node.backend.accounts) == ("RUNNING", ["robot"])


def test_it_says_in_plain_words_why_nothing_came(portal: HttpPortal) -> None:
    report = KernelReport(kernel_id=uuid4(), generation=1, state=KernelState.RUNNING)
    with pytest.raises(PortalUnreachable) as broken:
        PortalClient("http://127.0.0.1:1", NODE_TOKEN).report(report)
    assert broken.value.message.startswith("127.0.0.1 on port 1 cannot be reached: the connection was refused")
    with pytest.raises(PortalRefused) as refused:
        PortalClient(portal.url, "wrong").report(report)
    assert "{" not in refused.value.message and "(HTTP 401 to POST http" in refused.value.message


def test_it_tells_a_refusal_from_no_answer(portal: HttpPortal) -> None:
    report = KernelReport(kernel_id=uuid4(), generation=1, state=KernelState.RUNNING)
    with pytest.raises(PortalRefused) as refused:
        PortalClient(portal.url, "wrong").report(report)
    assert refused.value.status == 401
    portal.down = True
    with pytest.raises(PortalUnreachable):
        PortalClient(portal.url, NODE_TOKEN).report(report)
    with pytest.raises(PortalUnreachable):
        PortalClient("http://127.0.0.1:1", NODE_TOKEN).report(report)


def test_it_goes_by_the_clock_of_the_portal(portal: HttpPortal, monkeypatch: pytest.MonkeyPatch) -> None:
    client = PortalClient(portal.url, NODE_TOKEN)
    slow = time.time() - 600
    monkeypatch.setattr("backendai.agent.portal.client.time", SimpleNamespace(time=lambda: slow))
    client.fetch_spec(uuid4())
    assert 590 < client.now() - slow < 610


def test_it_asks_again_when_the_portal_hangs_up_on_a_kept_connection() -> None:
    listener = socket.create_server(("127.0.0.1", 0))
    requests: list[bytes] = []

    def serve() -> None:
        first, _ = listener.accept()
        requests.append(first.recv(65536))
        first.sendall(b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n")
        requests.append(first.recv(65536))
        first.close()  # takes the second request and gives no answer
        second, _ = listener.accept()
        requests.append(second.recv(65536))
        second.sendall(b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n")
        second.close()

    thread = Thread(target=serve, daemon=True)
    thread.start()
    client = PortalClient(f"http://127.0.0.1:{listener.getsockname()[1]}", NODE_TOKEN)
    assert client.fetch_spec(uuid4()) is None
    assert client.fetch_spec(uuid4()) is None
    thread.join(patient(5))
    listener.close()
    assert len(requests) == 3
