"""Joins bridges of several agents into one Ethernet, for sessions with kernels on more than one agent.

A VXLAN carries the frames of a session's bridge to its other agents, unencrypted: agents of a deployment must trust
their network. Packet rules keep kernels from the VXLAN port, so that they cannot forge such packets.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import socket
import subprocess
from collections.abc import Iterable
from pathlib import Path

from backendai.agent.backends.base import StartFailed
from backendai.agent.backends.shared.packet_rules import VXLAN_PORT
from backendai.base.wire.capabilities import Capability
from backendai.base.wire.cluster_network import ClusterNetwork

_PREFIX = "bax-"  # differs from the bridges' prefix, so that no packet rule matches these devices
_OVERHEAD = 50  # bytes that VXLAN adds to each packet
_FLOOD = "00:00:00:00:00:00"
_TOOLS = ("ip", "bridge")
_DEVICES = Path("/sys/class/net")


def mtu_for(network: ClusterNetwork) -> int:
    """Return the largest packet size that fits into a VXLAN packet to every other agent."""
    return min((_mtu_towards(_resolved(remote)) for remote in network.remotes), default=1500) - _OVERHEAD


def join(bridge: str, network: ClusterNetwork) -> None:
    """Connect a session's bridge with those on its other agents. Repeatable; repairs missing parts.

    Raises StartFailed with code ``cluster-network-failed``.
    """
    if not network.remotes:
        return
    if why := obstacle():
        raise StartFailed(
            "Kernels on several agents cannot be connected: {why}.", why=why, code="cluster-network-failed"
        )
    device = _device_of(bridge)
    remotes = {_resolved(remote) for remote in network.remotes}
    if not (_DEVICES / device).exists():
        _run(
            f"ip link add {device} mtu {mtu_for(network)} master {bridge} "
            f"type vxlan id {network.vni} dstport {VXLAN_PORT}"
        )
    _run(f"ip link set {device} up")
    for remote in sorted(remotes - _flooded(_run(f"bridge fdb show dev {device}"))):
        _run(f"bridge fdb append {_FLOOD} dev {device} dst {remote}")


def sweep() -> None:
    """Remove connections whose bridge no longer exists."""
    for device in _ours():
        if not (_DEVICES / device / "master").exists():
            subprocess.run(["ip", "link", "del", device], capture_output=True, timeout=10)


def obstacle() -> str:
    """Return why this agent cannot connect bridges; empty: it can."""
    if os.geteuid() != 0:
        return "the agent is not root"
    return "" if all(map(shutil.which, _TOOLS)) else "iproute2 is not installed"


def lacks() -> frozenset[Capability]:
    """Return the capability of cluster networks if there is an obstacle; else nothing."""
    return frozenset({Capability.CLUSTER_NETWORK}) if obstacle() else frozenset()


def _flooded(table: str) -> set[str]:
    """Return the agents that receive broadcasts. Ignores learned entries, as the other agent may have sent first."""
    return {words[words.index("dst") + 1] for words in map(str.split, table.splitlines()) if words[:1] == [_FLOOD]}


def _device_of(bridge: str) -> str:
    return _PREFIX + hashlib.sha256(bridge.encode()).hexdigest()[:11]


def _ours() -> Iterable[str]:
    return [path.name for path in _DEVICES.glob(f"{_PREFIX}*")]


def _resolved(host: str) -> str:
    try:
        return socket.gethostbyname(host)
    except OSError as error:
        text = "The other agent {host} has no address here: {error}."
        raise StartFailed(text, host=repr(host), error=str(error), code="cluster-network-failed") from error


def _mtu_towards(address: str) -> int:
    words = _run(f"ip -o route get {address}").split()
    device = words[words.index("dev") + 1] if "dev" in words else "lo"
    return min(int((_DEVICES / device / "mtu").read_text()), 9000)


def _run(command: str) -> str:
    done = subprocess.run(command.split(), capture_output=True, text=True, timeout=10)
    if done.returncode != 0:
        said = done.stderr.strip()[:200]
        raise StartFailed(
            "Kernels on several agents cannot be connected: {why}.", why=said, code="cluster-network-failed"
        )
    return done.stdout
