"""Services in real containers: started once, reached by the node alone."""

from __future__ import annotations

import asyncio
import os
import shutil
import urllib.request
from collections.abc import Iterator
from uuid import UUID, uuid4

import pytest
from docker import APIClient

from backendai.agent.backends.base import KernelGone
from backendai.agent.backends.docker.backend import DockerBackend
from backendai.agent.gateway.app_starts import AppStarts, AppState
from tests.agent.contract_tools import NewSpec
from tests.agent.docker_tools import shell
from tests.agent.images import ensure_service_image
from tests.patience import patient, until

pytestmark = [pytest.mark.docker]


@pytest.fixture
def kernel(backend: DockerBackend, engine: APIClient, new_spec: NewSpec) -> Iterator[UUID]:
    """A running kernel of the image with services."""
    spec = new_spec(image=ensure_service_image(engine))
    backend.start(spec)
    yield spec.kernel_id
    backend.remove(spec.kernel_id)


def look(starts: AppStarts, kernel_id: UUID, service: str, port: int, **over: bool) -> AppState:
    """Return the state once it is not starting any more."""
    for _ in range(30):
        state = asyncio.run(starts.look(kernel_id, service, port, **over))
        if state.state != "starting":
            break
        over = {}
    return state


def starts_of(backend: DockerBackend) -> AppStarts:
    assert backend.services is not None
    return AppStarts(backend.services)


def servers(engine: APIClient, kernel_id: UUID) -> list[str]:
    lines = shell(engine, kernel_id, "ps -o pid,ppid,args")[1].splitlines()
    return [line for line in lines if "nc -ll" in line]


def test_it_starts_a_service_once_however_often_it_is_wanted(
    backend: DockerBackend, engine: APIClient, kernel: UUID
) -> None:
    starts = starts_of(backend)
    assert servers(engine, kernel) == []
    assert look(starts, kernel, "notes", 8000).path == "/notes"
    before = servers(engine, kernel)
    assert len(before) == 1
    assert look(starts, kernel, "notes", 8000).state == "ready"
    assert look(starts_of(backend), kernel, "notes", 8000).path == "/notes", "after a restart of the agent"
    assert servers(engine, kernel) == before


def test_the_node_reaches_it_and_other_kernels_do_not(
    backend: DockerBackend, engine: APIClient, kernel: UUID, new_spec: NewSpec
) -> None:
    assert look(starts_of(backend), kernel, "notes", 8000).state == "ready"
    assert backend.services is not None
    address = backend.services.address(kernel)
    with urllib.request.urlopen(f"http://{address}:8000/", timeout=patient(10)) as page:
        assert b"Notes" in page.read()
    if os.geteuid() != 0 or not shutil.which("iptables"):
        return
    other = new_spec()
    backend.start(other)
    reach = f"nc -w 2 {address} 8000 </dev/null"
    assert shell(engine, kernel, reach)[0] == 0
    assert shell(engine, other.kernel_id, reach)[0] != 0


def test_it_shows_the_last_words_of_one_that_does_not_come_up(backend: DockerBackend, kernel: UUID) -> None:
    state = look(starts_of(backend), kernel, "broken", 8001)
    assert (state.state, state.message) == ("failed", "broken ended with exit code 3.")
    assert state.log == "nothing works\n"


def test_it_puts_a_new_one_in_the_place_of_one_that_does_not_answer(
    backend: DockerBackend, engine: APIClient, kernel: UUID, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(backend.services, "start_seconds", 0.0)
    starts = starts_of(backend)
    assert look(starts, kernel, "notes", 9999).state == "failed"  # it listens on 8000
    before = servers(engine, kernel)
    look(starts, kernel, "notes", 9999, again=True)
    until(lambda: (now := servers(engine, kernel)) and now != before)
    assert len(servers(engine, kernel)) == 1


def test_it_leaves_to_people_what_the_image_does_not_start(
    backend: DockerBackend, engine: APIClient, kernel: UUID
) -> None:
    starts = starts_of(backend)
    assert look(starts, kernel, "byhand", 8002).state == "absent"
    shell(engine, kernel, "nc -ll -p 8002 -e /srv/handle >/dev/null 2>&1 &")
    assert until(lambda: look(starts, kernel, "byhand", 8002).state == "ready")


def test_it_reaches_nothing_in_a_kernel_that_is_gone(backend: DockerBackend, kernel: UUID) -> None:
    assert backend.services is not None
    for kernel_id in (uuid4(), kernel):
        backend.stop(kernel, grace=0)
        with pytest.raises(KernelGone):
            backend.services.address(kernel_id)
        with pytest.raises(KernelGone):
            backend.services.launch(kernel_id, "notes", ["true"], {})
