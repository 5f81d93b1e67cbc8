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
_LINK_LOCAL = "169.254.0.0/16"
_HOOKS = ("INPUT", "DOCKER-USER")
_RESOLVER_FILES = (Path("/etc/resolv.conf"), Path("/run/systemd/resolve/resolv.conf"))
_TOOLS = ("iptables", "iptables-restore")
_LOCK = ("-w", "5")


class Firewall:
    """The rules for bridges whose name begins with ``bridges``; ``shielded`` are addresses that no kernel may reach."""

    def __init__(self, shielded: Sequence[str], *, bridges: str = BRIDGES, chains: str = CHAINS) -> None:
        self._shielded = [str(ipaddress.ip_network(address, strict=False)) for address in shielded]
        self._from_bridges = ("-i", f"{bridges}+")
        self._chains = chains
        self.missing = ""

    def setup(self, *, is_local: bool) -> None:
        """Put the rules in place, once however often this is called; ``missing`` says why when that is impossible."""
        self.missing = _obstacle() if is_local else "the engine is on another machine"
        if self.missing:
            return
        done = _iptables("-n", "-L", "DOCKER-USER") and self._fill() and all(map(self._hook, _HOOKS))
        self.missing = "" if done else "iptables refuses the rules"

    def remove(self) -> None:
        """Take the rules away; gone already is success."""
        if _obstacle():
            return
        for hook in _HOOKS:
            while _iptables("-D", hook, *self._jump(hook)):
                pass
            if _iptables("-F", self._chain(hook)):
                _iptables("-X", self._chain(hook))

    def notes(self) -> list[Note]:
        """Return what is open while the rules are missing."""
        if not self.missing:
            return []
        return [
            Note(
                code="firewall-missing",
                message=f"Kernels can reach services of this node and link-local addresses: {self.missing}.",
                fix="Run the agent as root on the engine's machine, with iptables installed.",
            )
        ]

    def _fill(self) -> bool:
        """Fill both chains in one atomic step, so that repeating it leaves no gap and no double rule."""
        lines = ["*filter", *(f":{self._chain(hook)} - [0:0]" for hook in _HOOKS)]
        for hook in _HOOKS:
            lines += [f"-A {self._chain(hook)} {rule}" for rule in self._rules(hook)]
        table = "\n".join([*lines, "COMMIT", ""])
        command = ["iptables-restore", "--noflush", *_LOCK]
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
            for address in (_LINK_LOCAL, *self._shielded):
                yield f"-d {address} -j REJECT"

    def _hook(self, hook: str) -> bool:
        rule = self._jump(hook)
        return _iptables("-C", hook, *rule) or _iptables("-I", hook, "1", *rule)

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


def _iptables(*arguments: str) -> bool:
    return subprocess.run(["iptables", *_LOCK, *arguments], capture_output=True, timeout=30).returncode == 0


def _name_servers() -> list[str]:
    """Return the IPv4 name servers that the engine forwards to; loopback ones it asks from the host itself."""
    found = set()
    for path in _RESOLVER_FILES:
        text = path.read_text() if path.exists() else ""
        found |= set(re.findall(r"^\s*nameserver\s+(\d+\.\d+\.\d+\.\d+)\s*$", text, re.MULTILINE))
    return sorted(server for server in found if not server.startswith("127."))
