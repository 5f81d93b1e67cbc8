"""The network of virtual machines: only outgoing connections, made by QEMU, with packet rules.

QEMU opens a guest's connections like any program, so that packet rules apply: every QEMU has a group that it cannot
leave, and the rules match this group's packets. Without the rules the machine gets no network.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from pathlib import Path

from backendai.agent.backends.docker.networks.network import BRIDGES
from backendai.agent.backends.qemu.networks.addresses import GuestAddresses
from backendai.agent.backends.qemu.networks.switch import hardware_address
from backendai.agent.backends.shared.packet_rules import (
    METADATA,
    V4,
    V6,
    VXLAN_PORT,
    Chains,
    by_version,
    name_servers,
    obstacle,
    refuse,
    to_name_servers,
)
from backendai.agent.settings.qemu import OFF

GROUP = 61183  # directly below systemd's dynamic users; no account has it
_CHAINS, _HOOK = "BAI-VM-", "OUTPUT"
_DEVICES, _ROUTES = Path("/sys/class/net"), Path("/proc/net/route")


class QemuNetwork:
    """``asked``: auto or off. ``shielded``: addresses that no kernel may reach. ``why_not``: set by ``ensure``; the
    reason why virtual machines have no network; empty: they have one."""

    def __init__(self, asked: str, shielded: Sequence[str], *, group: int = GROUP, chains: str = _CHAINS) -> None:
        self.asked, self.group, self.why_not = asked, group, ""
        self._shielded, _ = by_version(shielded)
        self._chains = Chains(chains, ("-m", "owner", "--gid-owner", str(group)))
        self._putting = threading.Lock()

    def ensure(self) -> bool:
        """Add the rules once, however often this is called; returns whether virtual machines have a network."""
        with self._putting:
            self.why_not = self._put()
        return not self.why_not

    def remove(self) -> None:
        """Remove the rules; call it when no virtual machine runs. Does nothing if they are gone."""
        for tool in (V4, V6) if not obstacle() else ():
            self._chains.remove(tool, [_HOOK])

    def _put(self) -> str:
        if self.asked == OFF:
            return "BACKENDAI_QEMU_NETWORK is off"
        if missing := obstacle():
            return missing
        if not self._chains.put(V4, {_HOOK: self.rules()}):
            return "iptables refuses the rules"
        self._chains.put(V6, {_HOOK: refuse()})  # may fail without IPv6, which QEMU's options also disable
        return ""

    def rules(self) -> Iterator[str]:
        """Yield the rules for QEMU's packets, in order."""
        yield from to_name_servers(name_servers())
        yield from refuse("-m addrtype ! --dst-type UNICAST")  # this machine's services, broadcast and multicast
        yield f"-p udp --dport {VXLAN_PORT} -j REJECT"
        for address in (*METADATA, *self._shielded):
            yield from refuse(f"-d {address}")
        for bridge in (f"{BRIDGES}+", *_bridges()):
            yield from refuse(f"-o {bridge}")


def network_words(addresses: GuestAddresses, *, has_network: bool, rank: int | None) -> list[str]:
    """Return QEMU's options for a guest's network devices, in order. ``rank``: in a cluster session."""
    words = []
    if has_network:
        told = f"net={addresses.outward},host={addresses.gateway},dns={addresses.name_server},ipv6=off"
        words += ["-netdev", f"user,id=network,{told}", "-device", "virtio-net-pci,netdev=network,romfile="]
    if rank is not None:
        device = f"virtio-net-pci,netdev=session,romfile=,mac={hardware_address(rank)}"
        words += ["-netdev", "dgram,id=session,local.type=fd,local.str={session}", "-device", device]
    return words or ["-nic", "none"]


def _bridges() -> list[str]:
    """Return the bridges of other containers and virtual machines: all without a default route."""
    routes = [line.split() for line in _ROUTES.read_text().splitlines()[1:]] if _ROUTES.exists() else []
    ways_out = {route[0] for route in routes if route[1] == "00000000"}
    found = sorted(path.parent.name for path in _DEVICES.glob("*/bridge"))
    return [name for name in found if name not in ways_out and not name.startswith(BRIDGES)]
