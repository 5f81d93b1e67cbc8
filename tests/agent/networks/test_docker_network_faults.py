"""What becomes of networks that are ready before their kernels when something goes wrong with them."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any, NoReturn
from uuid import uuid4

import pytest
import requests
from docker import APIClient
from docker.errors import APIError, NotFound

from backendai.agent.backends.base import BackendError
from backendai.agent.backends.docker import engine as docker_engine
from backendai.agent.backends.docker import start as docker_start
from backendai.agent.backends.docker.backend import DockerBackend
from backendai.agent.backends.docker.networks.prepared import holder as docker_holder
from backendai.agent.backends.docker.networks.prepared import networks as prepared_networks
from backendai.agent.backends.docker.networks.prepared.holder import NetworkHolders
from backendai.agent.backends.shared import starting
from tests.agent.contract_tools import NewSpec
from tests.agent.docker_tools import holders_of, shell, started_at
from tests.agent.networks.warm_tools import (
    Reopen,
    filled,
    holder_of,
    killed,
    network_of,
    stopped_filling,
    unused,
)
from tests.patience import until

pytestmark = pytest.mark.docker


class Clock:
    """Time that passes as ever, and at once where the code would sleep."""

    def __init__(self) -> None:
        self.skipped = 0.0

    def monotonic(self) -> float:
        return time.monotonic() + self.skipped

    def sleep(self, seconds: float) -> None:
        self.skipped += seconds


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    for module in (docker_engine, starting, prepared_networks):
        monkeypatch.setattr(module, "time", clock)
    return clock


def refusing_to_remove(patch: pytest.MonkeyPatch, container_ids: list[str], status: int) -> None:
    """Let the engine refuse to remove these containers, with this HTTP status."""
    remove = APIClient.remove_container

    def refuse(self: APIClient, container: str, **options: Any) -> None:
        if container not in container_ids:
            return remove(self, container, **options)
        response = requests.Response()
        response.status_code = status
        raise APIError("refused", response, "device or resource busy")

    patch.setattr(APIClient, "remove_container", refuse)


def silent(*args: Any) -> NoReturn:
    raise requests.ConnectionError("nothing answers")


def seems_unchanged(self: NetworkHolders, holder: docker_holder.NetworkHolder) -> bool:
    """What is told of a holder that something happens to a moment later."""
    return True


@pytest.mark.parametrize("status", [409, 500])
def test_it_sweeps_all_the_rest_when_one_network_cannot_be_removed(
    status: int,
    backend: DockerBackend,
    engine: APIClient,
    deployment: str,
    new_spec: NewSpec,
    monkeypatch: pytest.MonkeyPatch,
    clock: Clock,
    caplog: pytest.LogCaptureFixture,
) -> None:
    stuck = unused(backend)[0]
    lost = new_spec(cluster_size=2)
    backend.start(lost)
    engine.remove_container(f"krn-{lost.kernel_id}", force=True)
    killed(backend)
    backend._prepared._idle.clear()
    with monkeypatch.context() as refusing:
        refusing_to_remove(refusing, [stuck], status)
        backend.sweep(set())
        assert holders_of(engine, deployment) == [stuck]
        assert not list(backend._scratch.root.glob(f"{lost.kernel_id}*"))
        assert "cannot be removed now" in caplog.text
    backend.sweep(set())
    assert holders_of(engine, deployment) == []


def test_it_stops_within_one_deadline_however_many_networks_cannot_be_removed(
    backend: DockerBackend,
    engine: APIClient,
    deployment: str,
    reopened: Reopen,
    monkeypatch: pytest.MonkeyPatch,
    clock: Clock,
) -> None:
    ready = unused(backend)
    with monkeypatch.context() as refusing:
        refusing_to_remove(refusing, ready, 409)
        backend.close()
    assert 0 < clock.skipped <= prepared_networks._CLOSE_SECONDS
    assert set(holders_of(engine, deployment)) == set(ready)
    reopened(size=0).sweep(set())
    assert holders_of(engine, deployment) == []


def test_it_asks_a_silent_engine_nothing_when_it_stops_with_no_network_to_remove(
    tmp_path: Path, deployment: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    backend = DockerBackend(tmp_path, deployment=deployment, agent="n1")
    monkeypatch.setattr(APIClient, "send", lambda *args, **options: pytest.fail("it may never answer"))
    backend.close()


def test_it_keeps_the_outer_deadline_of_calls_when_an_inner_one_is_over(backend: DockerBackend) -> None:
    with backend._engine.asking(seconds=7) as client:
        with backend._engine.asking(seconds=3):
            assert client.timeout == 3
        assert client.timeout == 7


@pytest.mark.parametrize("noticed", [True, False])
def test_it_starts_the_usual_way_when_the_network_that_was_ready_is_gone(
    noticed: bool, backend: DockerBackend, engine: APIClient, new_spec: NewSpec, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not noticed:
        monkeypatch.setattr(NetworkHolders, "is_unchanged", seems_unchanged)
    stopped_filling(backend)
    dead, gone = unused(backend)
    engine.kill(dead)
    engine.remove_container(gone, force=True)
    for spec in (new_spec(), new_spec()):
        assert not backend.start(spec).adopted
        assert backend.services.address(spec.kernel_id)
        assert network_of(engine, spec) == backend._networks.shared
    backend.sweep({kernel.kernel_id for kernel in backend.kernels()})
    with pytest.raises(NotFound):
        engine.inspect_container(dead)


def test_it_tries_the_usual_way_once_even_when_the_time_for_the_start_is_over(
    backend: DockerBackend, engine: APIClient, new_spec: NewSpec, monkeypatch: pytest.MonkeyPatch, clock: Clock
) -> None:
    joining = docker_start.joining

    def late(*args: Any) -> Any:
        clock.sleep(1000)
        return joining(*args)

    monkeypatch.setattr(NetworkHolders, "is_unchanged", seems_unchanged)
    monkeypatch.setattr(docker_start, "joining", late)
    stopped_filling(backend)
    engine.kill(unused(backend)[0])
    spec = new_spec()
    assert started_at(backend, spec)
    assert clock.skipped == 1000
    assert network_of(engine, spec) == backend._networks.shared


def test_it_gives_no_kernel_a_network_that_was_restarted_and_removes_it(
    backend: DockerBackend, engine: APIClient, deployment: str, new_spec: NewSpec
) -> None:
    stopped_filling(backend)
    restarted, good = unused(backend)
    engine.restart(restarted, timeout=0)
    spec = new_spec()
    backend.start(spec)
    assert holder_of(engine, spec) == good
    backend.sweep({spec.kernel_id})
    assert holders_of(engine, deployment) == [good]


def test_it_replaces_a_ready_network_that_was_restarted(
    backend: DockerBackend, engine: APIClient, deployment: str
) -> None:
    restarted = unused(backend)[0]
    engine.restart(restarted, timeout=0)
    backend.sweep(set())
    filled(backend)
    assert restarted not in holders_of(engine, deployment)
    assert set(holders_of(engine, deployment)) == set(unused(backend))


def test_it_notes_a_kernel_whose_network_was_restarted(
    backend: DockerBackend, engine: APIClient, new_spec: NewSpec
) -> None:
    cut_off, fine = new_spec(), new_spec()
    for spec in (cut_off, fine):
        backend.start(spec)
    engine.restart(holder_of(engine, cut_off), timeout=0)
    assert "eth0" not in shell(engine, cut_off.kernel_id, "ip route")[1]
    backend.sweep({cut_off.kernel_id, fine.kernel_id})
    (note,) = [note for note in backend.notes() if note.code == "kernel-without-network"]
    assert str(cut_off.kernel_id) in note.message and "restarted" in note.message


def test_it_keeps_no_network_without_an_address(
    reopened: Reopen, engine: APIClient, deployment: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    body = docker_holder._body

    def body_without_network(labels: dict[str, str], network: str) -> dict[str, Any]:
        return body(labels, "none")

    monkeypatch.setattr(docker_holder, "_body", body_without_network)
    backend = reopened(size=0)
    with pytest.raises(BackendError, match="has no address"), backend._engine.asking():
        backend._holders.make(uuid4(), engine.info()["Architecture"])
    assert holders_of(engine, deployment) == []


def test_it_keeps_no_network_whose_holder_ends_at_once_and_waits_longer_each_time(
    reopened: Reopen, engine: APIClient, deployment: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    start = APIClient.start

    def start_and_end(self: APIClient, container: str) -> None:
        start(self, container)
        self.kill(container)
        self.wait(container)

    with monkeypatch.context() as dying:
        dying.setattr(APIClient, "start", start_and_end)
        backend = reopened()
        until(lambda: backend._prepared._retry_after > prepared_networks._RETRY_SECONDS)
    assert unused(backend) == holders_of(engine, deployment) == []
    assert list(backend._prepared._marks.all()) == []
    backend.sweep(set())
    assert backend._prepared._retry_from > time.monotonic(), "a sweep proves nothing about what the engine refused"


def test_it_fills_up_soon_after_an_engine_that_was_silent_answers_again(
    reopened: Reopen, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(prepared_networks, "_RETRY_SECONDS", 500.0)
    with monkeypatch.context() as unplugged:
        unplugged.setattr(NetworkHolders, "make", silent)
        backend = reopened()
        until(lambda: backend._prepared._retry_from)
        assert backend._prepared._retry_after == 500.0
        backend._prepared._retry_from = 0.0
        with backend._prepared.undisturbed():
            pass
        until(lambda: backend._prepared._retry_from)
        assert backend._prepared._retry_after == 500.0
    backend.sweep(set())
    filled(backend)


def test_it_removes_all_networks_but_those_of_kernels_when_the_deployment_leaves_the_engine(
    backend: DockerBackend, engine: APIClient, deployment: str, reopened: Reopen, new_spec: NewSpec
) -> None:
    spec = new_spec()
    backend.start(spec)
    filled(backend)
    killed(backend)
    leaving = reopened(size=0)
    leaving.dismantle()
    assert holders_of(engine, deployment) == [holder_of(engine, spec)]
    leaving.remove(spec.kernel_id)
    leaving.dismantle()
    assert holders_of(engine, deployment) == []
    assert engine.networks(names=[leaving._networks.shared]) == []
