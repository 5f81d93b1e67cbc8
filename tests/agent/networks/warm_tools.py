"""Agents that keep networks ready for kernels, and what is behind them, for the tests with a real container engine."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from docker import APIClient

from backendai.agent.backends.docker.backend import DockerBackend
from backendai.base.wire.messages import KernelSpec
from tests.patience import until

READY = 2
Reopen = Callable[..., DockerBackend]


@contextmanager
def agents_with_warm_networks(deployment: str, folder: Path) -> Iterator[Reopen]:
    """Give a function that makes an instance of an agent (``n1`` unless told), ready to work; nothing of it is left."""
    made: list[DockerBackend] = []

    def reopen(*, size: int = READY, agent: str = "n1") -> DockerBackend:
        one = DockerBackend(folder / agent, deployment=deployment, agent=agent, warm_networks=size)
        made.append(one)
        one.setup()
        return one

    yield reopen
    for one in made:
        for kernel in one.kernels():
            one.remove(kernel.kernel_id)
        one.close()
        one.sweep(set())


def filled(backend: DockerBackend) -> DockerBackend:
    """Return the backend when its pool is full."""
    until(lambda: len(unused(backend)) == backend._prepared._size)
    return backend


def unused(backend: DockerBackend) -> list[str]:
    return [holder.container_id for holder in backend._prepared._idle]


def killed(backend: DockerBackend) -> None:
    """Let the backend do nothing any more, as after kill -9 of its agent."""
    with backend._prepared._changed:
        backend._prepared._closed = True
        backend._prepared._changed.notify_all()
    assert backend._prepared._thread is not None
    backend._prepared._thread.join(30)


def stopped_filling(backend: DockerBackend) -> DockerBackend:
    """Return the backend with a full pool that is not filled again."""
    backend._prepared._retry_from = time.monotonic() + 1000
    return backend


def network_of(engine: APIClient, spec: KernelSpec) -> str:
    return str(engine.inspect_container(f"krn-{spec.kernel_id}")["HostConfig"]["NetworkMode"])


def holder_of(engine: APIClient, spec: KernelSpec) -> str:
    """Return the container that holds the kernel's network."""
    mode = network_of(engine, spec)
    assert mode.startswith("container:")
    return mode.removeprefix("container:")


def address_of(engine: APIClient, container: str) -> str:
    (network,) = engine.inspect_container(container)["NetworkSettings"]["Networks"].values()
    return str(network["IPAddress"])
