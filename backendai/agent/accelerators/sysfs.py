"""Reads facts about devices from sysfs, without a vendor's library."""

from __future__ import annotations

from pathlib import Path

_DISPLAY = "0x03"  # the PCI class of graphics cards and 3D controllers


def read(path: Path) -> str:
    """Return the text of a small file; empty if it is missing or unreadable."""
    try:
        return path.read_text(errors="replace").strip()
    except OSError:
        return ""


def read_number(path: Path) -> int | None:
    """Return the integer in a file (also ``0x…``); None if there is none."""
    try:
        return int(read(path), 0)
    except ValueError:
        return None


def count_cards(sys: Path, vendor: str) -> int:
    """Return the number of graphics cards of a vendor (``0x10de``) on the PCI bus."""
    return sum(
        read(card / "vendor") == vendor and read(card / "class").startswith(_DISPLAY)
        for card in sys.glob("bus/pci/devices/*")
    )


def numa_node(sys: Path, bus_id: str) -> int | None:
    """Return the NUMA node nearest to a PCI device (``00000000:19:00.0``); None on machines with one node."""
    domain, _, rest = bus_id.lower().partition(":")
    node = read_number(sys / "bus/pci/devices" / f"{domain[-4:]}:{rest}" / "numa_node")
    return node if node is not None and node >= 0 else None
