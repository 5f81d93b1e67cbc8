"""The Kubernetes backend against a real cluster: the contract, and what only a cluster can do."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import pytest
import yaml

from backendai.agent.backends.base import Backend
from backendai.agent.backends.kubernetes import KubernetesBackend
from backendai.agent.backends.kubernetes_access import find_access
from backendai.agent.kubernetes_settings import PoolSettings
from tests.agent.backend_contract import BackendContract
from tests.agent.contract_tools import NewSpec
from tests.agent.images import TMUX_IMAGE
from tests.agent.kubernetes_bed import bed, ensure_bed, namespace
from tests.agent.specs import make_spec
from tests.agent.stream_contract import StreamContract

pytestmark = [pytest.mark.kubernetes, pytest.mark.long, pytest.mark.timeout(300)]
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
        pool = PoolSettings(reach="direct", **settings)
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


class TestKubernetesBackend(BackendContract):
    """The contract, with terminals that are plain shells."""

    def clients_of(self, backend: Backend, kernel_id: UUID) -> int:
        return len(processes_of(kernel_id))


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
