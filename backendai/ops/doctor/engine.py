"""Checks of the Docker Engine: limits, restarts, storage and networks, from ``/info``."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from backendai.agent.backends.docker.networks.cluster import obstacle
from backendai.base.wire.cluster_network import DEFAULT_POOL, most_networks
from backendai.ops.doctor.check import Check, ok, problem, warning
from backendai.ops.run.engine import NoEngine, ask_engine

_OLDEST_API = (1, 41)
_ENOUGH_NETWORKS = 200
_BRIDGE_RULES = Path("/proc/sys/net/bridge/bridge-nf-call-iptables")
_DAEMON_FILE = "/etc/docker/daemon.json"

Ask = Callable[[str], Any]


def docker(ask: Ask = ask_engine) -> list[Check]:
    """Return the findings about the Docker Engine; one warning if none answers."""
    try:
        version, info = ask("/version"), ask("/info")
    except NoEngine as error:
        message = f"no Docker Engine: {error}; sessions run as native processes with weaker isolation"
        return [warning("docker", message, error.fix)]
    looks = (live_restore, storage, cgroups, security, bridges)
    return [engine_version(version), *(look(info) for look in looks), networks(), cluster_networks(obstacle())]


def engine_version(version: Mapping[str, Any]) -> Check:
    """Check that the engine's API is new enough."""
    api = tuple(int(part) for part in str(version.get("ApiVersion", "0")).split("."))
    said = f"Docker Engine {version.get('Version', '?')}, API {version.get('ApiVersion', '?')}"
    said += f", Linux {version['KernelVersion']}" if version.get("KernelVersion") else ""
    if api < _OLDEST_API:
        return problem("docker", f"{said} is too old", "Install Docker Engine 20.10 or newer.")
    return ok("docker", said)


def live_restore(info: Mapping[str, Any]) -> Check:
    """Check that sessions survive a restart of the engine."""
    if info.get("LiveRestoreEnabled"):
        return ok("live-restore", "is on: sessions survive a restart of Docker")
    if info.get("Swarm", {}).get("LocalNodeState") == "active":
        return warning("live-restore", "is off, and swarm mode forbids it", "docker swarm leave, then switch it on")
    fix = f'put {{"live-restore": true}} into {_DAEMON_FILE} and reload Docker (systemctl reload docker)'
    return warning("live-restore", "is off: every session ends when Docker restarts", fix)


def storage(info: Mapping[str, Any]) -> Check:
    """Check that the storage driver is fast."""
    driver = str(info.get("Driver", "?"))
    if driver == "vfs":
        fix = f'set {{"storage-driver": "overlay2"}} in {_DAEMON_FILE}, on a file system that overlayfs can use'
        return warning("storage driver", "vfs copies every image for every session", fix)
    return ok("storage driver", driver)


def cgroups(info: Mapping[str, Any]) -> Check:
    """Check that limits of CPU, memory and processes are enforced."""
    said = f"cgroup version {info.get('CgroupVersion', '1')}, driver {info.get('CgroupDriver', '?')}"
    names = {"MemoryLimit": "memory", "CpuCfsQuota": "cpu", "PidsLimit": "processes"}
    missing = [what for key, what in names.items() if not info.get(key)]
    if missing:
        fix = "Enable these cgroup controllers in the kernel's boot options (cgroup_enable=memory swapaccount=1)."
        return problem("cgroups", f"{said}: no limit of {', '.join(missing)} can be set", fix)
    return ok("cgroups", said)


def cluster_networks(why_not: str) -> Check:
    """Check that sessions with kernels on several agents can use this agent. ``why_not``: why it cannot."""
    if why_not:
        message = f"{why_not}: sessions whose kernels lie on several agents leave this one out"
        return warning("cluster networks", message, "Run the agent as root, and install iproute2.")
    return ok("cluster networks", "this agent joins networks over several agents")


def networks(pool: str | None = None) -> Check:
    """Check that there are addresses for a network of each cluster session.

    The engine's own address pools do not matter.
    """
    text = pool or os.environ.get("BACKENDAI_NETWORK_POOL") or DEFAULT_POOL
    fix = f"Set BACKENDAI_NETWORK_POOL to a larger private network that is not in use here, such as {DEFAULT_POOL}."
    try:
        count = most_networks(text)
    except ValueError:
        return problem("networks", f"BACKENDAI_NETWORK_POOL {text} is not a valid network", fix)
    said = f"{text} has addresses for {count} networks of sessions, and each cluster session needs one"
    return ok("networks", said) if count >= _ENOUGH_NETWORKS else warning("networks", said, fix)


def security(info: Mapping[str, Any]) -> Check:
    """Check that system calls are filtered."""
    options = " ".join(info.get("SecurityOptions") or [])
    if "seccomp" not in options:
        return warning("seccomp", "Docker filters no system calls", "Use a kernel and a Docker with seccomp.")
    return ok("seccomp", "Docker filters system calls" + (" (rootless)" if "rootless" in options else ""))


def bridges(info: Mapping[str, Any], setting: Path = _BRIDGE_RULES) -> Check:
    """Check that packets between sessions on the shared network pass the packet filter."""
    is_on = info.get("BridgeNfIptables")
    if is_on is None and setting.exists():  # newer engines do not tell
        is_on = setting.read_text().strip() != "0"
    if is_on is False:
        fix = "modprobe br_netfilter && sysctl -w net.bridge.bridge-nf-call-iptables=1, also in /etc/sysctl.d/"
        return warning("bridges", "sessions can reach each other: bridged packets pass no packet rules", fix)
    return ok("bridges", "bridged packets pass the packet rules")
