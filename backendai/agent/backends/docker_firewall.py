"""Packet rules that keep kernels from the node's services, link-local addresses and the platform's machines.

Docker's own rules keep networks apart but leave every service of the host open to every container. Two chains of our
own, entered only by packets from our bridges, close that; names are still resolved and the internet is still reached.
"""

from __future__ import annotations

import ipaddress
import os
import re
import shutil
import subprocess
from collections.abc import Iterable, Sequence
from pathlib import Path

from backendai.agent.backends.docker_cluster import VXLAN_PORT
from backendai.agent.backends.docker_network import BRIDGES
from backendai.wire.messages import Note

CHAINS = "BAI-"
# Link-local addresses, and what Azure and Alibaba Cloud have instead: from these machines learn their own keys.
_METADATA = ("169.254.0.0/16", "168.63.129.16/32", "100.100.100.200/32")
_METADATA_V6 = ("fe80::/10", "fd00:ec2::254/128")
_HOOKS = ("INPUT", "DOCKER-USER")
_HOOKS_V6 = ("INPUT", "FORWARD")  # the engine has no chain for users there unless it handles IPv6
_V4, _V6 = "iptables", "ip6tables"
_IPV6_ADDRESSES = Path("/proc/net/if_inet6")  # missing or empty: this machine has no IPv6
_RESOLVER_FILES = (Path("/etc/resolv.conf"), Path("/run/systemd/resolve/resolv.conf"))
_TOOLS = ("iptables", "iptables-restore")
_LOCK = ("-w", "5")


class Firewall:
    """The rules for bridges whose name begins with ``bridges``; ``shielded`` are addresses that no kernel may reach."""

    def __init__(self, shielded: Sequence[str], *, bridges: str = BRIDGES, chains: str = CHAINS) -> None:
        networks = [ipaddress.ip_network(address, strict=False) for address in shielded]
        self._shielded = [str(network) for network in networks if network.version == 4]
        self._shielded_v6 = [str(network) for network in networks if network.version == 6]
        self._from_bridges = ("-i", f"{bridges}+")
        self._chains = chains
        self.missing, self._is_open_v6 = "", False

    def setup(self, *, is_local: bool) -> None:
        """Put the rules in place, once however often this is called; ``missing`` says why when that is impossible."""
        self.missing = _obstacle() if is_local else "the engine is on another machine"
        if self.missing:
            return
        done = _run(_V4, "-n", "-L", "DOCKER-USER") and self._put(_V4, _HOOKS)
        self.missing = "" if done else "iptables refuses the rules"
        self._is_open_v6 = _has_ipv6() and not (shutil.which(_V6) and self._put(_V6, _HOOKS_V6))

    def remove(self) -> None:
        """Take the rules away; gone already is success."""
        if _obstacle():
            return
        for tool, hooks in ((_V4, _HOOKS), (_V6, _HOOKS_V6)):
            for hook in hooks if shutil.which(tool) else ():
                while _run(tool, "-D", hook, *self._jump(hook)):
                    pass
                if _run(tool, "-F", self._chain(hook)):
                    _run(tool, "-X", self._chain(hook))

    def notes(self) -> list[Note]:
        """Return what is open while the rules are missing."""
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

    def _put(self, tool: str, hooks: Sequence[str]) -> bool:
        return self._fill(tool, hooks) and all(self._hook(tool, hook) for hook in hooks)

    def _fill(self, tool: str, hooks: Sequence[str]) -> bool:
        """Fill both chains in one atomic step, so that repeating it leaves no gap and no double rule."""
        lines = ["*filter", *(f":{self._chain(hook)} - [0:0]" for hook in hooks)]
        for hook in hooks:
            rules = self._rules(hook) if tool == _V4 else self._rules_v6(hook)
            lines += [f"-A {self._chain(hook)} {rule}" for rule in rules]
        table = "\n".join([*lines, "COMMIT", ""])
        command = [f"{tool}-restore", "--noflush", *_LOCK]
        return subprocess.run(command, input=table.encode(), capture_output=True, timeout=30).returncode == 0

    def _rules(self, hook: str) -> Iterable[str]:
        yield "-m conntrack --ctstate ESTABLISHED,RELATED -j RETURN"
        for server in _name_servers():
            yield f"-d {server} -p udp --dport 53 -j RETURN"
            yield f"-d {server} -p tcp --dport 53 -j RETURN"
        if hook == "INPUT":
            yield "-j REJECT"
        else:
            yield f"-p udp --dport {VXLAN_PORT} -j REJECT"  # it joins sessions over nodes: nobody shall forge them
            for address in (*_METADATA, *self._shielded):
                yield f"-d {address} -j REJECT"

    def _rules_v6(self, hook: str) -> Iterable[str]:
        yield "-m conntrack --ctstate ESTABLISHED,RELATED -j RETURN"
        if hook == "INPUT":
            yield "-j REJECT"
        else:
            for address in (*_METADATA_V6, *self._shielded_v6):
                yield f"-d {address} -j REJECT"

    def _hook(self, tool: str, hook: str) -> bool:
        rule = self._jump(hook)
        return _run(tool, "-C", hook, *rule) or _run(tool, "-I", hook, "1", *rule)

    def _jump(self, hook: str) -> tuple[str, ...]:
        return (*self._from_bridges, "-j", self._chain(hook))

    def _chain(self, hook: str) -> str:
        return f"{self._chains}{hook}"


def _obstacle() -> str:
    if os.geteuid() != 0:
        return "the agent is not root"
    if not all(map(shutil.which, _TOOLS)):
        return "iptables is not installed"
    return ""


def _has_ipv6() -> bool:
    try:
        return bool(_IPV6_ADDRESSES.read_text().strip())
    except OSError:
        return False


def _run(tool: str, *arguments: str) -> bool:
    return subprocess.run([tool, *_LOCK, *arguments], capture_output=True, timeout=30).returncode == 0


def _name_servers() -> list[str]:
    """Return the IPv4 name servers that the engine forwards to; loopback ones it asks from the host itself."""
    found = set()
    for path in _RESOLVER_FILES:
        text = path.read_text() if path.exists() else ""
        found |= set(re.findall(r"^\s*nameserver\s+(\d+\.\d+\.\d+\.\d+)\s*$", text, re.MULTILINE))
    return sorted(server for server in found if not server.startswith("127."))


def shielded_addresses() -> list[str]:
    """Return the addresses of the platform that no kernel may reach, as the environment tells them."""
    return [part.strip() for part in os.environ.get("BACKENDAI_SHIELDED", "").split(",") if part.strip()]
