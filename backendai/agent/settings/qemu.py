"""The settings of an agent's virtual machines."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from ipaddress import IPv4Network
from pathlib import Path

from backendai.base.core.errors import UserError
from backendai.base.core.slots import parse_size

ACCELERATIONS = ("auto", "kvm", "tcg")
OFF = "off"
NETWORKS = ("auto", OFF)
GUESTS = IPv4Network("198.51.100.0/24")  # a documentation network (RFC 5737), not used on the Internet
# unspecified, loopback, link-local, multicast and reserved addresses
_UNUSABLE = tuple(map(IPv4Network, ("0.0.0.0/8", "127.0.0.0/8", "169.254.0.0/16", "224.0.0.0/4", "240.0.0.0/4")))
_OVERHEAD = 128 * 2**20
_MOST_OVERHEAD = 16 * 2**30


@dataclass(frozen=True, slots=True)
class QemuSettings:
    """Settings of virtual machines. ``root``: where QEMU, its tools and a Linux kernel are. ``cache``: folder of the
    images' file systems (None: in the agent's folder). ``overhead``: bytes of each kernel's memory for QEMU.
    ``network``: auto (on if its rules can be enforced) or off. ``guests``: the 256 addresses inside virtual
    machines."""

    root: Path = Path("/")
    cache: Path | None = None
    acceleration: str = ACCELERATIONS[0]
    overhead: int = _OVERHEAD
    network: str = NETWORKS[0]
    guests: IPv4Network = GUESTS


def read_machines(environ: Mapping[str, str]) -> QemuSettings:
    """Return the settings of virtual machines. Raises UserError."""
    acceleration = environ.get("BACKENDAI_QEMU_ACCELERATION", "") or ACCELERATIONS[0]
    if acceleration not in ACCELERATIONS:
        raise _wrong("BACKENDAI_QEMU_ACCELERATION", acceleration, f"use {', '.join(ACCELERATIONS)}")
    network = environ.get("BACKENDAI_QEMU_NETWORK", "") or NETWORKS[0]
    if network not in NETWORKS:
        raise _wrong("BACKENDAI_QEMU_NETWORK", network, f"use {' or '.join(NETWORKS)}")
    told = environ.get("BACKENDAI_QEMU_OVERHEAD", "")
    overhead = parse_size(told, field="BACKENDAI_QEMU_OVERHEAD", typed=True) if told else _OVERHEAD
    if overhead > _MOST_OVERHEAD:
        raise _wrong("BACKENDAI_QEMU_OVERHEAD", told, "use 16g at most")
    return QemuSettings(
        root=_folder(environ, "BACKENDAI_QEMU_ROOT") or Path("/"),
        cache=_folder(environ, "BACKENDAI_QEMU_CACHE"),
        acceleration=acceleration,
        overhead=overhead,
        network=network,
        guests=_guests(environ.get("BACKENDAI_QEMU_GUESTS", "")),
    )


def _guests(told: str) -> IPv4Network:
    if not told:
        return GUESTS
    try:
        found = IPv4Network(told)
    except ValueError:
        found = None
    if found is None or found.prefixlen != GUESTS.prefixlen or not _can_be_used(found):
        raise _wrong("BACKENDAI_QEMU_GUESTS", told, f"use an IPv4 network of 256 addresses, such as {GUESTS}")
    return found


def _can_be_used(network: IPv4Network) -> bool:
    return not any(network.overlaps(one) for one in _UNUSABLE)


def _folder(environ: Mapping[str, str], variable: str) -> Path | None:
    told = environ.get(variable, "")
    if told and not told.startswith("/"):
        raise _wrong(variable, told, "use a folder that begins with /")
    return Path(told) if told else None


def _wrong(variable: str, text: str, advice: str) -> UserError:
    return UserError(f"{variable} is {text!r}: {advice}.", field=variable)
