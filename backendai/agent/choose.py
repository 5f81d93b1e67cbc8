"""Which backend a node works with."""

from __future__ import annotations

import logging

from backendai.agent.backends.base import Backend, BackendError
from backendai.agent.backends.docker import DockerBackend
from backendai.agent.backends.process import ProcessBackend
from backendai.agent.backends.simulated import Pace, SimulatedBackend
from backendai.agent.config import NodeSettings
from backendai.agent.credentials import Credentials
from backendai.core.slots import Slots

logger = logging.getLogger(__name__)

_SIMULATED_MACHINE = Slots.parse({"cpu": 64, "mem": "256g"})


def choose_backend(settings: NodeSettings, credentials: Credentials) -> Backend:
    """Return the backend that was asked for; ``auto`` is the container engine when it answers, else processes."""
    if settings.backend == "simulated":
        return _simulated(settings, credentials)
    if settings.backend == "process":
        return _process(settings, credentials)
    docker = DockerBackend(
        data=settings.data,
        deployment=credentials.deployment,
        agent=credentials.name,
        docker_url=settings.docker_url,
        warm_networks=settings.warm_networks,
    )
    try:
        docker.capacity()
        docker.setup()
    except BackendError as error:
        if settings.backend == "auto":
            logger.warning("kernels will be native processes: %s", error.message)
            docker.close()
            return _process(settings, credentials)
        logger.warning("the container engine is not there yet: %s", error.message)
    return docker


def _process(settings: NodeSettings, credentials: Credentials) -> ProcessBackend:
    return ProcessBackend(data=settings.data, deployment=credentials.deployment, agent=credentials.name)


def _simulated(settings: NodeSettings, credentials: Credentials) -> SimulatedBackend:
    return SimulatedBackend(
        deployment=credentials.deployment,
        capacity=settings.slots or _SIMULATED_MACHINE,
        pace=Pace(time_scale=settings.time_scale),
        journal=settings.data / "simulated.json",
    )
