"""Looking into containers, for the tests that need a container engine."""

from __future__ import annotations

from uuid import UUID

from docker import APIClient

from backendai.agent.backends.docker.backend import DockerBackend
from backendai.base.wire.messages import KernelSpec


def shell(engine: APIClient, kernel_id: UUID, command: str) -> tuple[int, str]:
    """Return exit code and output of a shell command in a kernel."""
    made = engine.exec_create(f"krn-{kernel_id}", ["/bin/sh", "-c", command], user="1000:1000")
    output = engine.exec_start(made["Id"]).decode(errors="replace")
    return engine.exec_inspect(made["Id"])["ExitCode"], output


def started_at(backend: DockerBackend, spec: KernelSpec) -> str:
    """Start a kernel and return the address at which this machine reaches it."""
    backend.start(spec)
    return backend.services.address(spec.kernel_id)


def holders_of(engine: APIClient, deployment: str) -> list[str]:
    """Return the ids of all network holders of a deployment."""
    label = [f"backendai.deployment={deployment}", "backendai.network"]
    return [container["Id"] for container in engine.containers(all=True, filters={"label": label})]


def clear(engine: APIClient, deployment: str) -> None:
    """Remove every container and network of a deployment."""
    label = {"label": [f"backendai.deployment={deployment}"]}
    for container in engine.containers(all=True, filters=label):
        engine.remove_container(container["Id"], force=True)
    for network in engine.networks(filters=label):
        engine.remove_network(network["Id"])
