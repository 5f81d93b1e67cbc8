"""Builds the body of the engine's create call from a kernel's spec: limits, isolation, labels, main process."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

from backendai.agent.accelerators.base import NOTHING, Grant
from backendai.agent.backends.base import SH, StartFailed
from backendai.agent.backends.docker.disk.layers import LIMIT_LABEL
from backendai.agent.backends.docker.disk.scratch import HOME, TEMPORARY
from backendai.agent.backends.docker.engine import PREFIX
from backendai.agent.backends.docker.mounts import body_of
from backendai.agent.backends.guest_host import INSIDE as GUEST_INSIDE
from backendai.agent.backends.shared.authorities import INSIDE, authority_environ
from backendai.agent.backends.shared.cluster_files import ClusterAccess, cluster_environ
from backendai.agent.backends.shared.home import main_command
from backendai.agent.mounts.kernel_mounts import NO_BINDS, Binds
from backendai.agent.settings.kernel_runtime import LEAST_MEMORY, Runtime
from backendai.base.core.service_ports import LABEL as SERVICES_LABEL
from backendai.base.core.slots import MILLI, Slots, format_size
from backendai.base.paths.mount_targets import HOME as WORKDIR
from backendai.base.wire.messages import KernelSpec

USER = "1000:1000"
_TEMPORARY_FOLDERS = ("/tmp", "/var/tmp")  # noqa: S108  (in the container)
_NANO_PER_MILLI = 1_000_000
_ENVIRON = {"HOME": WORKDIR, "LANG": "C.UTF-8", "TERM": "xterm"}
LOG_DRIVER = "local"  # `json-file` replaces bytes that are no text, and characters between two records
NETWORK_SYSCTLS = {"net.ipv4.ping_group_range": "0 65535"}
_NOT_ROOT = (
    "The agent does not run as root, so that it can give kernels no files of their own: the kernels of this session "
    "cannot log in to each other by SSH."
)
ACCESS = ClusterAccess(GUEST_INSIDE, "/tmp/.cluster-environ", "" if os.geteuid() == 0 else _NOT_ROOT)  # noqa: S108  (in it)


def container_body(
    spec: KernelSpec,
    *,
    labels: dict[str, str],
    scratch: Path,
    network: str,
    cpus: int,
    grant: Grant = NOTHING,
    binds: Binds = NO_BINDS,
    authorities: Path | None = None,
    read_only: Mapping[str, Path] = MappingProxyType({}),
    sizes_layers: bool = False,
) -> dict[str, Any]:
    """Return the create call's body. ``cpus``: the cores of the engine's machine. ``read_only``: further mounts by
    target. ``sizes_layers``: the engine can limit the writable layer."""
    # Only in a session's network: on the shared network all kernels have the same name.
    aliases = [spec.hostname] if spec.cluster_size > 1 else []
    trusted = authority_environ(spec, INSIDE) if authorities else {}
    environ = {**_ENVIRON, **trusted, **cluster_environ(spec, ACCESS), **spec.environ, **grant.environ}
    host = _host_config(spec, scratch=scratch, network=network, cpus=cpus, authorities=authorities)
    if sizes_layers and spec.scratch_bytes:
        host["StorageOpt"] = {"size": str(spec.scratch_bytes)}
    for target, folder in read_only.items():
        host["Mounts"].append({"Type": "bind", "Source": str(folder), "Target": target, "ReadOnly": True})
    host["Mounts"] += body_of(binds)
    return {
        "Image": spec.exact_image,
        "Hostname": spec.hostname,
        "User": USER if binds.uid is None else f"{binds.uid}:{binds.uid}",
        "WorkingDir": spec.start_in or WORKDIR,
        "Env": [f"{name}={value}" for name, value in environ.items()],
        "Entrypoint": [SH, "-c"],
        "Cmd": main_command(spec, WORKDIR, ACCESS)[2:],
        "StopSignal": "SIGTERM",
        "Tty": False,
        "Labels": labels | kernel_labels(spec),
        "HostConfig": _joined(host, grant.host),
        "NetworkingConfig": {"EndpointsConfig": {network: {"Aliases": aliases} | _fixed_address(spec)}},
    }


def kernel_labels(spec: KernelSpec) -> dict[str, str]:
    """Return the labels that identify the kernel, its services and its layer's limit."""
    services = spec.environ.get("BACKENDAI_SERVICE_PORTS")
    return ({SERVICES_LABEL: services} if services else {}) | {
        LIMIT_LABEL: str(spec.scratch_bytes),
        f"{PREFIX}session": str(spec.session_id),
        f"{PREFIX}kernel": str(spec.kernel_id),
        f"{PREFIX}generation": str(spec.generation),
    }


def memory_limit(spec: KernelSpec) -> int:
    """Return the kernel's memory limit in bytes; 0 if it has none."""
    return Slots.parse(spec.slots)["mem"] // MILLI


def _host_config(
    spec: KernelSpec, *, scratch: Path, network: str, cpus: int, authorities: Path | None
) -> dict[str, Any]:
    memory = memory_limit(spec)
    cpu = min(Slots.parse(spec.slots)["cpu"], cpus * MILLI)  # the engine rejects more than the machine's cores
    return {
        "NanoCpus": cpu * _NANO_PER_MILLI,
        "Memory": memory,
        "MemorySwap": memory,
        "ShmSize": spec.shm_bytes,
        "PidsLimit": spec.pids,
        "CapDrop": ["ALL"],
        "SecurityOpt": ["no-new-privileges"],
        "IpcMode": "private",
        "Init": True,
        "Sysctls": NETWORK_SYSCTLS,
        "LogConfig": _log_options(spec),
        "Mounts": [
            {"Type": "bind", "Source": str(scratch / HOME), "Target": WORKDIR},
            *({"Type": "bind", "Source": str(scratch / TEMPORARY), "Target": target} for target in _TEMPORARY_FOLDERS),
            *(
                [{"Type": "bind", "Source": str(authorities), "Target": INSIDE, "ReadOnly": True}]
                if authorities
                else []
            ),
        ],
        "NetworkMode": network,
        # The engine resolves only names on this machine, and its names of addresses are those of containers.
        "ExtraHosts": [f"{peer.hostname}:{peer.address}" for peer in spec.peers if peer.address],
        "RestartPolicy": {"Name": "no"},
    }


def options_of(runtime: Runtime, memory: int) -> dict[str, Any]:
    """Return the runtime's host options; its overhead is subtracted from the kernel's memory. Raises StartFailed if too
    little is left."""
    if memory and runtime.overhead and memory - runtime.overhead < LEAST_MEMORY:
        raise StartFailed(
            "The runtime {runtime} takes {taken} of each kernel's memory: ask for {least} or more.",
            runtime=runtime.name,
            taken=format_size(runtime.overhead),
            least=format_size(runtime.overhead + LEAST_MEMORY),
        )
    left = memory - runtime.overhead if memory else 0
    return {"Memory": left, "MemorySwap": left} | ({"Runtime": runtime.name} if runtime.name else {})


def _fixed_address(spec: KernelSpec) -> dict[str, Any]:
    """Return the address by which the session's other kernels know the kernel; empty if the engine chooses one."""
    own = next((peer.address for peer in spec.peers if peer.hostname == spec.hostname), None)
    return {"IPAMConfig": {"IPv4Address": own}} if own else {}


def _log_options(spec: KernelSpec) -> dict[str, Any]:
    """Return the log's driver, which keeps all bytes as they are, and its limit. The limit is halved: there are two
    files, as a rotation with one would delete the whole log."""
    limits = {"max-size": str(max(spec.log_bytes // 2, 4096)), "max-file": "2", "compress": "false"}
    return {"Type": LOG_DRIVER, "Config": limits}


def _joined(options: dict[str, Any], extra: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options with the extra ones: lists are concatenated, other values replaced."""
    grown = {name: options.get(name, []) + more for name, more in extra.items() if isinstance(more, list)}
    return {**options, **extra, **grown}
