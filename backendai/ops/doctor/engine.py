"""Checks of the Docker Engine: what ``/info`` says about limits, restarts, storage and networks."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from backendai.ops.doctor.check import Check, ok, problem, warning
from backendai.ops.engine import NoEngine, ask_engine

_OLDEST_API = (1, 41)
_BUILT_IN_NETWORKS = 31  # what the engine's own default pools give
_ENOUGH_NETWORKS = 200
_DAEMON_FILE = "/etc/docker/daemon.json"

Ask = Callable[[str], Any]


def docker(ask: Ask = ask_engine) -> list[Check]:
    """Return what there is to say about the engine; one warning when none answers."""
    try:
        version, info = ask("/version"), ask("/info")
    except NoEngine as error:
        message = f"no Docker Engine: {error}; sessions run as native processes with weaker isolation"
        return [warning("docker", message, error.fix)]
    looks = (live_restore, storage, cgroups, networks, security)
    return [engine_version(version), *(look(info) for look in looks)]


def engine_version(version: Mapping[str, Any]) -> Check:
    """The engine speaks an API that is new enough."""
    api = tuple(int(part) for part in str(version.get("ApiVersion", "0")).split("."))
    said = f"Docker Engine {version.get('Version', '?')}, API {version.get('ApiVersion', '?')}"
    said += f", Linux {version['KernelVersion']}" if version.get("KernelVersion") else ""
    if api < _OLDEST_API:
        return problem("docker", f"{said} is too old", "Install Docker Engine 20.10 or newer.")
    return ok("docker", said)


def live_restore(info: Mapping[str, Any]) -> Check:
    """Sessions survive a restart of the engine."""
    if info.get("LiveRestoreEnabled"):
        return ok("live-restore", "is on: sessions survive a restart of Docker")
    if info.get("Swarm", {}).get("LocalNodeState") == "active":
        return warning("live-restore", "is off, and swarm mode forbids it", "docker swarm leave, then switch it on")
    fix = f'put {{"live-restore": true}} into {_DAEMON_FILE} and reload Docker (systemctl reload docker)'
    return warning("live-restore", "is off: every session ends when Docker restarts", fix)


def storage(info: Mapping[str, Any]) -> Check:
    """Containers are stored by a driver that is fast."""
    driver = str(info.get("Driver", "?"))
    if driver == "vfs":
        fix = f'set {{"storage-driver": "overlay2"}} in {_DAEMON_FILE}, on a file system that overlayfs can use'
        return warning("storage driver", "vfs copies every image for every session", fix)
    return ok("storage driver", driver)


def cgroups(info: Mapping[str, Any]) -> Check:
    """Limits of CPU, memory and processes are enforced."""
    said = f"cgroup version {info.get('CgroupVersion', '1')}, driver {info.get('CgroupDriver', '?')}"
    names = {"MemoryLimit": "memory", "CpuCfsQuota": "cpu", "PidsLimit": "processes"}
    missing = [what for key, what in names.items() if not info.get(key)]
    if missing:
        fix = "Enable these cgroup controllers in the kernel's boot options (cgroup_enable=memory swapaccount=1)."
        return problem("cgroups", f"{said}: no limit of {', '.join(missing)} can be set", fix)
    return ok("cgroups", said)


def networks(info: Mapping[str, Any]) -> Check:
    """There are addresses for one network per cluster session."""
    pools = info.get("DefaultAddressPools") or []
    count = _count_networks(pools) if pools else _BUILT_IN_NETWORKS
    if count < _ENOUGH_NETWORKS:
        fix = (
            f'put {{"default-address-pools": [{{"base": "10.64.0.0/12", "size": 26}}]}} into {_DAEMON_FILE} '
            "and restart Docker"
        )
        return warning("networks", f"Docker can make only {count} networks, and cluster sessions need one each", fix)
    return ok("networks", f"Docker can make {count} networks")


def security(info: Mapping[str, Any]) -> Check:
    """System calls are filtered."""
    options = " ".join(info.get("SecurityOptions") or [])
    if "seccomp" not in options:
        return warning("seccomp", "Docker filters no system calls", "Use a kernel and a Docker with seccomp.")
    return ok("seccomp", "Docker filters system calls" + (" (rootless)" if "rootless" in options else ""))


def _count_networks(pools: Sequence[Mapping[str, Any]]) -> int:
    return sum(2 ** max(0, int(pool["Size"]) - int(str(pool["Base"]).rpartition("/")[2])) for pool in pools)
