"""The Kubernetes backend against a real cluster: the contract, and what only a cluster can do."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any, ClassVar
from uuid import UUID, uuid4

import pytest
import yaml

from backendai.agent.backends.base import Backend
from backendai.agent.backends.kubernetes import terminal as kubernetes_terminal
from backendai.agent.backends.kubernetes.api.access import find_access
from backendai.agent.backends.kubernetes.api.streams import output_of
from backendai.agent.backends.kubernetes.backend import KubernetesBackend
from backendai.agent.gateway.app_starts import AppStarts
from backendai.agent.gateway.ports import NotListening, Ports
from backendai.agent.settings.kubernetes import PoolSettings
from backendai.base.wire.messages import HomeFile, Peer
from tests.agent.backend_contract import BackendContract
from tests.agent.contract_tools import NewSpec, answer_of, ask, ended_of
from tests.agent.images import SERVICE_IMAGE, SERVICE_LABEL, TMUX_IMAGE
from tests.agent.kubernetes_bed import bed, ensure_bed, namespace
from tests.agent.specs import make_spec
from tests.agent.stream_contract import StreamContract
from tests.patience import until

pytestmark = [pytest.mark.kubernetes, pytest.mark.timeout(300)]
Open = Callable[..., KubernetesBackend]


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, Path]]:
    """A namespace, and a kubeconfig with the rights of an agent."""
    ensure_bed()
    with namespace() as (name, said):
        path = tmp_path_factory.mktemp("kubernetes") / "config"
        path.write_text(yaml.safe_dump(said))
        yield name, path


@pytest.fixture
def opened(place: tuple[str, Path], tmp_path: Path) -> Iterator[Open]:
    """Makes backends; each forgets its kernels at the end."""
    made: list[KubernetesBackend] = []

    def make(deployment: str, agent: str = "n1", **settings: Any) -> KubernetesBackend:
        pool = PoolSettings(**{"reach": "direct"} | settings)
        data = tmp_path / deployment / agent
        made.append(KubernetesBackend(data, find_access(place[1]), pool, deployment=deployment, agent=agent))
        return made[-1]

    yield make
    for one in made:
        for kernel in one.kernels():
            one.remove(kernel.kernel_id)
        one.sweep(set())
        one.close()


@pytest.fixture(scope="module")
def deployment() -> str:
    return f"test-{uuid4().hex[:8]}"


@pytest.fixture
def backend(opened: Open, deployment: str) -> KubernetesBackend:
    backend = opened(deployment)
    backend.setup()
    return backend


@pytest.fixture
def neighbour(opened: Open) -> KubernetesBackend:
    return opened(f"test-{uuid4().hex[:8]}")


@pytest.fixture
def reopened(opened: Open, deployment: str) -> Callable[[], KubernetesBackend]:
    return partial(opened, deployment)


@pytest.fixture
def new_spec(deployment: str) -> NewSpec:
    return partial(make_spec, deployment=deployment, agent="n1", slots={"cpu": "0.1", "mem": str(64 * 2**20)})


def processes_of(kernel_id: UUID) -> list[str]:
    """Return the processes of a kernel's container, as its engine sees them."""
    container = bed("docker", "ps", "-q", "--filter", f"name=k8s_main_krn-{kernel_id}").split()
    return bed("docker", "top", container[0], "-eo", "pid,tty,args").splitlines()[1:] if container else []


def run(code: str, kernel_id: UUID, backend: KubernetesBackend) -> str:
    """Return what a command in a kernel writes."""
    return output_of(backend.api, f"krn-{kernel_id}", ["sh", "-c", code])[0].decode()


def test_a_home_has_its_files_and_the_bootstrap_script_ran_first(backend: KubernetesBackend, new_spec: NewSpec) -> None:
    files = [
        HomeFile(path=".ssh/config", mode=0o600, content="Host x\n"),
        HomeFile(path="it's $(me)", mode=0o755, content="$HOME 'quoted' $(id)\n"),
    ]
    script = "#!/bin/sh\necho made >made\n"
    spec = new_spec(files=files, bootstrap=script, session_type="batch", command="cat made it*me?; echo $(pwd)")
    backend.start(spec)
    ended_of(backend, spec.kernel_id)
    log, _ = backend.read_log(spec.kernel_id, limit=1000)
    assert log.decode() == "made\n$HOME 'quoted' $(id)\n/home/work\n"
    backend.remove(spec.kernel_id)
    secrets = backend.api.ask("GET", backend.api.path("secrets"), query={"labelSelector": "ai.backend/kernel"})
    assert secrets["items"] == []


def test_kernels_of_a_session_find_each_other_by_name(backend: KubernetesBackend, new_spec: NewSpec) -> None:
    session, names = uuid4(), ("main1", "sub1", "sub2")
    specs = [
        new_spec(
            session_id=session,
            hostname=name,
            cluster_size=3,
            peers=[Peer(hostname=one) for one in names],
            session_type="batch",
            command="while :; do hostname | nc -l -p 9000; done",
        )
        for name in names
    ]
    with ThreadPoolExecutor(3) as threads:
        list(threads.map(backend.start, specs))
    for spec, name in itertools.product(specs, names):
        words = f"nc -w 2 {name} 9000 </dev/null"
        until(partial(lambda spec, words, name: name in run(words, spec.kernel_id, backend), spec, words, name))
    hosts = run("cat /etc/hosts", specs[0].kernel_id, backend)
    assert [hosts.count(name) for name in ("sub1", "sub2")] == [1, 1]


def test_memory_that_runs_out_and_a_missing_shell_are_reasons(backend: KubernetesBackend, new_spec: NewSpec) -> None:
    hungry = new_spec(session_type="batch", command="exec tail -c 100000000 /dev/zero")
    backend.start(hungry)
    ended = ended_of(backend, hungry.kernel_id)
    assert (ended.reason, "64 MiB" in ended.message) == ("out-of-memory", True)


def test_a_log_survives_the_deletion_of_its_pod_by_somebody_else(backend: KubernetesBackend, new_spec: NewSpec) -> None:
    spec = new_spec(
        session_type="batch", command="echo before; trap 'echo after; exit 0' TERM; while :; do sleep 0.2; done"
    )
    backend.start(spec)
    until(lambda: b"before" in backend.read_log(spec.kernel_id, limit=100)[0])
    path = backend.api.path("pods", f"krn-{spec.kernel_id}")
    backend.api.ask("DELETE", path, {"gracePeriodSeconds": 10})
    until(lambda: backend.kernels() and backend.ended(spec.kernel_id))
    ended = backend.ended(spec.kernel_id)
    assert ended is not None and ended.reason == "pod-deleted"
    until(lambda: backend.read_log(spec.kernel_id, limit=100)[0].endswith(b"after\n"))


@pytest.mark.asyncio
@pytest.mark.parametrize("reach", ["direct", "forward"])
async def test_an_app_is_started_and_reached(opened: Open, deployment: str, new_spec: NewSpec, reach: str) -> None:
    backend = await asyncio.to_thread(opened, deployment, reach=reach)
    spec = new_spec(image=SERVICE_IMAGE, environ={"BACKENDAI_SERVICE_PORTS": SERVICE_LABEL})
    await asyncio.to_thread(backend.start, spec)
    assert backend.services is not None
    ports = Ports(backend.services)
    starts = AppStarts(backend.services, ports)
    async with asyncio.timeout(60):
        while (state := await starts.look(spec.kernel_id, "notes", 8000)).state == "starting":
            await asyncio.sleep(0.2)
        assert state.state == "ready", state
        assert (await starts.look(spec.kernel_id, "byhand", 8002)).state == "absent"
        while (state := await starts.look(spec.kernel_id, "broken", 8001)).state == "starting":
            await asyncio.sleep(0.2)
        assert state.state == "failed" and "exit code" in state.message
        assert b"200 OK" in await asyncio.to_thread(answer_of, ports, spec.kernel_id)
    with pytest.raises(NotListening):
        await ports.dial(spec.kernel_id, "nothing", 9999)


@pytest.mark.asyncio
async def test_the_end_of_a_shell_leaves_nothing_to_hang_up(
    backend: KubernetesBackend, new_spec: NewSpec, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec = new_spec()
    await asyncio.to_thread(backend.start, spec)
    terminal = await backend.open_terminal(spec.kernel_id, name="one", rows=24, cols=80)
    await ask(terminal, b"echo mark-$((40 + 2))\n", b"mark-42")
    await terminal.write(b"exit\n")
    while await terminal.read():
        pass
    monkeypatch.setattr(kubernetes_terminal, "output_of", None)  # in a pod that ends with the shell it may hang
    await terminal.close()


class TestKubernetesBackend(BackendContract):
    """The contract, with terminals that are plain shells."""

    # The nodes of the test cluster keep logs as JSON, which has no bytes that are no text and splits at 16 KiB.
    prints_odd_lines = r"printf '日\n1%%\r2%%\r3%%\v\n'; yes x | head -n 27000 | tr -d '\n'; printf '\nlast\n'"
    odd_lines: ClassVar = ["日\n".encode(), b"1%\r2%\r3%\x0b\n", b"x" * 27000 + b"\n", b"last\n"]

    def clients_of(self, backend: Backend, kernel_id: UUID) -> int:
        return len(processes_of(kernel_id))


@pytest.mark.long
class TestKubernetesTerminalsWithTmux(StreamContract):
    """The part of the contract about streams, with an image that has tmux."""

    keeps_terminals = True

    @pytest.fixture
    def new_spec(self, deployment: str) -> NewSpec:
        return partial(
            make_spec, deployment=deployment, agent="n1", image=TMUX_IMAGE, slots={"cpu": "0.1", "mem": str(64 * 2**20)}
        )

    def clients_of(self, backend: Backend, kernel_id: UUID) -> int:
        clients = [line for line in processes_of(kernel_id) if "new-session" in line]
        return sum(line.split()[1] != "?" for line in clients)  # the server has no terminal of its own
