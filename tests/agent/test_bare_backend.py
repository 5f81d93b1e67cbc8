"""The core of the contract is enough: an agent runs kernels with a backend that has no ability beside it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from uuid import UUID

import pytest

from backendai.agent.backends.abilities import Committing, HomeProviding, Imaging, Measuring, Mounting, Streaming
from backendai.agent.backends.base import Backend, Ended, KernelEvent, Started
from backendai.agent.backends.docker.backend import DockerBackend
from backendai.agent.backends.docker.networks import cluster as docker_cluster
from backendai.agent.loop.machine import capabilities_of
from backendai.base.core.slots import Slots
from backendai.base.wire.capabilities import Capability
from backendai.base.wire.messages import KernelSighting, KernelSpec
from tests.agent.memory_backend import MemoryBackend
from tests.agent.node import Node
from tests.agent.portal import make_spec


class BareBackend(Backend):
    """The nine methods of the contract, and nothing else."""

    name = "bare"

    def __init__(self, kernels: MemoryBackend) -> None:
        self._kernels = kernels

    def capacity(self) -> Slots:
        return self._kernels.capacity()

    def start(self, spec: KernelSpec) -> Started:
        return self._kernels.start(spec)

    def stop(self, kernel_id: UUID, *, grace: float) -> None:
        self._kernels.stop(kernel_id, grace=grace)

    def ended(self, kernel_id: UUID) -> Ended | None:
        return self._kernels.ended(kernel_id)

    def read_log(self, kernel_id: UUID, *, limit: int) -> tuple[bytes, bool]:
        return self._kernels.read_log(kernel_id, limit=limit)

    def remove(self, kernel_id: UUID) -> None:
        self._kernels.remove(kernel_id)

    def kernels(self) -> list[KernelSighting]:
        return self._kernels.kernels()

    def watch(self) -> Iterator[KernelEvent]:
        return self._kernels.watch()

    def close(self) -> None:
        self._kernels.close()


def test_a_kernel_lives_and_ends_on_it_and_a_missing_image_is_told() -> None:
    memory = MemoryBackend()
    node = Node(backend=BareBackend(memory))  # type: ignore[arg-type]
    spec = node.portal.want(make_spec())
    node.kernels.start_soon(spec.kernel_id, 1)
    node.settle()
    assert node.portal.states(spec.kernel_id)[-1] == "RUNNING"
    node.sync()
    assert (node.portal.syncs[-1].images, node.portal.syncs[-1].storage_hosts) == ([], [])
    node.portal.terminate(spec.kernel_id)
    node.sync()
    assert node.portal.states(spec.kernel_id)[-1] == "TERMINATED" and memory.entries == {}
    missing = node.portal.want(make_spec(image="big"))
    node.kernels.start_soon(missing.kernel_id, 1)
    node.settle()
    report = node.portal.reports[-1]
    assert (report.reason, report.message) == ("image-not-found", "big cannot be used here: this agent has no images.")


def test_it_claims_nothing_and_is_asked_for_nothing_else() -> None:
    bare = BareBackend(MemoryBackend())
    assert capabilities_of(bare) == set()
    assert not isinstance(bare, Committing | HomeProviding | Imaging | Measuring | Mounting | Streaming)
    assert (bare.notes(), bare.fault(), bare.engine(), bare.storage(), bare.overfull()) == ([], "", "", [], [])


def test_an_ability_that_this_machine_lacks_is_not_reported(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(docker_cluster, "obstacle", lambda: "iproute2 is not installed")
    backend = DockerBackend(tmp_path, deployment="d", agent="a")
    told = capabilities_of(backend)
    assert Capability.CLUSTER_NETWORK not in told and Capability.COMMIT in told
    monkeypatch.setattr(docker_cluster, "obstacle", lambda: "")
    assert Capability.CLUSTER_NETWORK in capabilities_of(DockerBackend(tmp_path, deployment="d", agent="a"))
