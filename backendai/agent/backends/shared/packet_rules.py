"""Packet rules of this machine, in chains that only kernels' packets enter."""

from __future__ import annotations

import ipaddress
import os
import re
import shutil
import subprocess
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

VXLAN_PORT = 4789  # VXLAN's official port, which joins sessions over agents: kernels must not forge its packets
# Metadata services of clouds, which return credentials: link-local, and those of Azure and Alibaba Cloud.
METADATA = ("169.254.0.0/16", "168.63.129.16/32", "100.100.100.200/32")
METADATA_V6 = ("fe80::/10", "fd00:ec2::254/128")
V4, V6 = "iptables", "ip6tables"
_IPV6_ADDRESSES = Path("/proc/net/if_inet6")  # missing or empty without IPv6
_RESOLVER_FILES = (Path("/etc/resolv.conf"), Path("/run/systemd/resolve/resolv.conf"))
_TOOLS = ("iptables", "iptables-restore")
_LOCK = ("-w", "5")


@dataclass(frozen=True, slots=True)
class Chains:
    """One chain for each built-in chain. ``prefix``: of their names. ``match``: selects the packets that enter."""

    prefix: str
    match: Sequence[str]

    def put(self, tool: str, rules: Mapping[str, Iterable[str]]) -> bool:
        """Add these rules once, however often this is called; returns whether they are in place."""
        return self._fill(tool, rules) and all(self._hook(tool, hook) for hook in rules)

    def remove(self, tool: str, hooks: Iterable[str]) -> None:
        """Remove the chains. Does nothing if they are gone."""
        for hook in hooks if shutil.which(tool) else ():
            while accepts(tool, "-D", hook, *self._jump(hook)):
                pass
            if accepts(tool, "-F", self._chain(hook)):
                accepts(tool, "-X", self._chain(hook))

    def _fill(self, tool: str, rules: Mapping[str, Iterable[str]]) -> bool:
        """Fill the chains atomically, so that a repetition causes neither a gap nor duplicate rules."""
        lines = ["*filter", *(f":{self._chain(hook)} - [0:0]" for hook in rules)]
        lines += [f"-A {self._chain(hook)} {rule}" for hook, listed in rules.items() for rule in listed]
        table = "\n".join([*lines, "COMMIT", ""])
        command = [f"{tool}-restore", "--noflush", *_LOCK]
        return subprocess.run(command, input=table.encode(), capture_output=True, timeout=30).returncode == 0

    def _hook(self, tool: str, hook: str) -> bool:
        rule = self._jump(hook)
        return accepts(tool, "-C", hook, *rule) or accepts(tool, "-I", hook, "1", *rule)

    def _jump(self, hook: str) -> tuple[str, ...]:
        return (*self.match, "-j", self._chain(hook))

    def _chain(self, hook: str) -> str:
        return f"{self.prefix}{hook}"


def accepts(tool: str, *arguments: str) -> bool:
    """Return whether the tool succeeds with these arguments."""
    return subprocess.run([tool, *_LOCK, *arguments], capture_output=True, timeout=30).returncode == 0


def obstacle() -> str:
    """Return why this process cannot set packet rules; empty: it can."""
    if os.geteuid() != 0:
        return "the agent is not root"
    if not all(map(shutil.which, _TOOLS)):
        return "iptables is not installed"
    return ""


def has_ipv6() -> bool:
    """Return whether this machine has an IPv6 address."""
    try:
        return bool(_IPV6_ADDRESSES.read_text().strip())
    except OSError:
        return False


def name_servers() -> list[str]:
    """Return the IPv4 name servers of this machine."""
    found = set()
    for path in _RESOLVER_FILES:
        text = path.read_text() if path.exists() else ""
        found |= set(re.findall(r"^\s*nameserver\s+(\d+\.\d+\.\d+\.\d+)\s*$", text, re.MULTILINE))
    return sorted(found)


def to_name_servers(servers: Iterable[str]) -> Iterable[str]:
    """Yield the rules that allow name resolution."""
    for server in servers:
        yield f"-d {server} -p udp --dport 53 -j RETURN"
        yield f"-d {server} -p tcp --dport 53 -j RETURN"


def refuse(match: str = "") -> Iterator[str]:
    """Yield rules that reject packets. Connections are reset, as Linux may retry after an ICMP message."""
    yield f"{match} -p tcp -j REJECT --reject-with tcp-reset".lstrip()
    yield f"{match} -j REJECT".lstrip()


def by_version(addresses: Iterable[str]) -> tuple[list[str], list[str]]:
    """Return the addresses as networks, IPv4 and IPv6 separately. Raises ValueError."""
    networks = [ipaddress.ip_network(address, strict=False) for address in addresses]
    four, six = ([str(one) for one in networks if one.version == version] for version in (4, 6))
    return four, six


def shielded_addresses() -> list[str]:
    """Return the platform's addresses from the settings, which no kernel may reach."""
    return [part.strip() for part in os.environ.get("BACKENDAI_SHIELDED", "").split(",") if part.strip()]
