"""Chooses an agent's backend, and the accelerators that the agent offers."""

from __future__ import annotations

import logging

from backendai.agent.accelerators.base import Accelerator
from backendai.agent.accelerators.cuda import Cuda
from backendai.agent.accelerators.cuda_grant import Mps
from backendai.agent.accelerators.inventory import Accelerators, PoolGpus
from backendai.agent.accelerators.offer import is_accelerator
from backendai.agent.accelerators.rocm import Rocm
from backendai.agent.backends.base import Backend, BackendError
from backendai.agent.backends.docker.backend import DockerBackend
from backendai.agent.backends.kubernetes.api.access import find_access
from backendai.agent.backends.kubernetes.backend import KubernetesBackend
from backendai.agent.backends.native.backend import NativeBackend
from backendai.agent.backends.qemu.backend import QemuBackend
from backendai.agent.backends.simulated.backend import SimulatedBackend, SimulatedDurations
from backendai.agent.mounts.hosts import StorageHosts
from backendai.agent.settings.config import NodeSettings
from backendai.agent.settings.credentials import Credentials
from backendai.agent.settings.marks import clear_containers, has_run_containers, is_marked_native, note_containers
from backendai.base.core.slots import Slots

logger = logging.getLogger(__name__)

_SIMULATED_MACHINE = Slots.parse({"cpu": 64, "mem": "256g"})


def choose_accelerators(settings: NodeSettings) -> Accelerators:
    """Return this machine's accelerators according to the settings. Simulated agents have only those named in the
    settings."""
    asked = {slot: amount for slot, amount in (settings.slots or {}).items() if is_accelerator(slot)}
    if settings.backend == "simulated":
        return Accelerators(asked=asked)
    if settings.backend in ("kubernetes", "qemu") or settings.runtime.has_border:
        return Accelerators()  # a pool has its own, and virtual machines cannot use the machine's
    kinds = list[Accelerator]()
    if settings.cuda != "off":
        mps = Mps(settings.mps_pipe, is_native=settings.backend == "process")
        kinds.append(Cuda("shares" if settings.cuda == "shares" else "device", mps=mps))
    if settings.rocm != "off":
        kinds.append(Rocm())
    return Accelerators(kinds, asked=asked)


def choose_backend(settings: NodeSettings, credentials: Credentials, accelerators: Accelerators) -> Backend:
    """Return the backend of the settings. ``auto`` is the container engine if it answers or has run this agent's
    sessions before, else native processes. While the mark of ``bin/up`` exists, native processes replace containers."""
    if settings.backend == "simulated":
        return _simulated(settings, credentials)
    if settings.backend == "kubernetes":
        return _kubernetes(settings, credentials, accelerators)
    if settings.backend == "qemu":
        return _qemu(settings, credentials)
    if settings.backend == "process":
        clear_containers(settings.data)
        return _process(settings, credentials, accelerators)
    docker = DockerBackend(
        data=settings.data,
        deployment=credentials.deployment,
        agent=credentials.name,
        docker_url=settings.docker_url,
        accelerators=accelerators,
        warm_networks=settings.warm_networks,
        disk_reserve=settings.disk_reserve,
        runtime=settings.runtime,
        hosts=_hosts(settings, credentials),
    )
    try:
        docker.capacity()
        docker.setup()
        note_containers(settings.data)
        if is_marked_native(settings.data) and not docker.kernels():  # the mark must not give up running containers
            logger.warning("kernels are native processes until the image of this machine is built")
            docker.close()
            return _process(settings, credentials, accelerators)
    except BackendError as error:
        if settings.backend == "auto" and not has_run_containers(settings.data):
            logger.warning("kernels will be native processes: %s", error.message)
            docker.close()
            return _process(settings, credentials, accelerators)
        logger.warning("the container engine is not there yet: %s", error.message)
    return docker


def _kubernetes(settings: NodeSettings, credentials: Credentials, accelerators: Accelerators) -> KubernetesBackend:
    """Return the Kubernetes backend. Raises BackendError if the settings name no cluster; an unreachable cluster is
    retried."""
    backend = KubernetesBackend(
        settings.data,
        find_access(settings.pool.kubeconfig, settings.pool.context),
        settings.pool,
        deployment=credentials.deployment,
        agent=credentials.name,
        told=settings.slots,
        hosts=_hosts(settings, credentials),
    )
    accelerators.add(PoolGpus(backend.pool.gpus))
    try:
        backend.setup()
    except BackendError as error:
        logger.warning("the Kubernetes cluster is not there yet: %s", error.message)
    return backend


def _qemu(settings: NodeSettings, credentials: Credentials) -> QemuBackend:
    backend = QemuBackend(
        settings.data,
        settings.machines,
        deployment=credentials.deployment,
        agent=credentials.name,
        docker_url=settings.docker_url,
        hosts=_hosts(settings, credentials),
    )
    backend.setup()
    return backend


def _process(settings: NodeSettings, credentials: Credentials, accelerators: Accelerators) -> NativeBackend:
    return NativeBackend(
        data=settings.data,
        deployment=credentials.deployment,
        agent=credentials.name,
        accelerators=accelerators,
        hosts=_hosts(settings, credentials),
        serves=settings.serves_natively,
        environments=settings.environments,
    )


def _hosts(settings: NodeSettings, credentials: Credentials) -> StorageHosts:
    return StorageHosts(settings.storage_hosts, settings.linked_paths, credentials.deployment)


def _simulated(settings: NodeSettings, credentials: Credentials) -> SimulatedBackend:
    return SimulatedBackend(
        deployment=credentials.deployment,
        capacity=settings.slots or _SIMULATED_MACHINE,
        pace=SimulatedDurations(time_scale=settings.time_scale),
        journal=settings.data / "simulated.json",
        hosts=list(settings.storage_hosts),
    )
