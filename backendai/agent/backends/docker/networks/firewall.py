"""Packet rules that keep kernels from the machine's services, link-local addresses and the platform's machines.

Docker's own rules separate networks, but leave every service of the machine open to every container. Two chains for
packets from our bridges close these; name servers and the internet stay reachable.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Sequence

from backendai.agent.backends.docker.networks.network import BRIDGES
from backendai.agent.backends.shared.packet_rules import (
    METADATA,
    METADATA_V6,
    V4,
    V6,
    VXLAN_PORT,
    Chains,
    accepts,
    by_version,
    has_ipv6,
    name_servers,
    obstacle,
    refuse,
    shielded_addresses,
    to_name_servers,
)
from backendai.base.wire.messages import Note

CHAINS = "BAI-"
_HOOKS = ("INPUT", "DOCKER-USER")
_HOOKS_V6 = ("INPUT", "FORWARD")  # without IPv6 support the engine has no DOCKER-USER chain there


class Firewall:
    """The rules for bridges whose name begins with ``bridges``. ``shielded``: addresses that no kernel may reach; None:
    those in the settings."""

    def __init__(self, shielded: Sequence[str] | None = None, *, bridges: str = BRIDGES, chains: str = CHAINS) -> None:
        self._shielded, self._shielded_v6 = by_version(shielded_addresses() if shielded is None else shielded)
        self._chains = Chains(chains, ("-i", f"{bridges}+"))
        self.missing, self._is_open_v6 = "", False

    def setup(self, *, is_local: bool) -> None:
        """Add the rules once, however often this is called; ``missing`` is the reason if that is impossible."""
        self.missing = obstacle() if is_local else "the engine is on another machine"
        if self.missing:
            return
        rules = {hook: self._rules(hook) for hook in _HOOKS}
        done = accepts(V4, "-n", "-L", "DOCKER-USER") and self._chains.put(V4, rules)
        self.missing = "" if done else "iptables refuses the rules"
        rules = {hook: self._rules_v6(hook) for hook in _HOOKS_V6}
        self._is_open_v6 = has_ipv6() and not (shutil.which(V6) and self._chains.put(V6, rules))

    def remove(self) -> None:
        """Remove the rules. Does nothing if they are gone."""
        if not obstacle():
            self._chains.remove(V4, _HOOKS)
            self._chains.remove(V6, _HOOKS_V6)

    def notes(self) -> list[Note]:
        """Return notes about missing rules and their consequences."""
        if not self.missing and not self._is_open_v6:
            return []
        if not self.missing:
            return [
                Note(
                    code="firewall-ipv6-missing",
                    message="No packet rules for IPv6: kernels with IPv6 addresses can reach services of this agent.",
                    fix="Install ip6tables (package iptables), or switch IPv6 off for containers.",
                )
            ]
        return [
            Note(
                code="firewall-missing",
                message=f"Kernels can reach services of this agent and link-local addresses: {self.missing}.",
                fix="Run the agent as root on the engine's machine, with iptables installed.",
            )
        ]

    def _rules(self, hook: str) -> Iterable[str]:
        yield "-m conntrack --ctstate ESTABLISHED,RELATED -j RETURN"
        # The engine itself asks name servers on the loopback.
        yield from to_name_servers(server for server in name_servers() if not server.startswith("127."))
        if hook == "INPUT":
            yield from refuse()
        else:
            yield f"-p udp --dport {VXLAN_PORT} -j REJECT"
            for address in (*METADATA, *self._shielded):
                yield from refuse(f"-d {address}")

    def _rules_v6(self, hook: str) -> Iterable[str]:
        yield "-m conntrack --ctstate ESTABLISHED,RELATED -j RETURN"
        if hook == "INPUT":
            yield from refuse()
        else:
            for address in (*METADATA_V6, *self._shielded_v6):
                yield from refuse(f"-d {address}")
