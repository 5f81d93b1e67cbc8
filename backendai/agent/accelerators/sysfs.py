"""What Linux itself says about devices, without any driver's library."""

from __future__ import annotations

from pathlib import Path

_DISPLAY = "0x03"  # the class of graphics cards and of 3D controllers


def read(path: Path) -> str:
    """Return the text of a small file, empty when it is not there or cannot be read now."""
    try:
        return path.read_text(errors="replace").strip()
    except OSError:
        return ""


def read_number(path: Path) -> int | None:
    """Return the whole number in a file (also ``0x…``), None when there is none."""
    try:
        return int(read(path), 0)
    except ValueError:
        return None


def count_cards(sys: Path, vendor: str) -> int:
    """Return how many graphics cards of a vendor (``0x10de``) are on the machine's bus."""
    return sum(
        read(card / "vendor") == vendor and read(card / "class").startswith(_DISPLAY)
        for card in sys.glob("bus/pci/devices/*")
    )


def numa_node(sys: Path, bus_id: str) -> int | None:
    """Return the memory node that a device on the bus (``00000000:19:00.0``) is near to; None where all are one."""
    domain, _, rest = bus_id.lower().partition(":")
    node = read_number(sys / "bus/pci/devices" / f"{domain[-4:]}:{rest}" / "numa_node")
    return node if node is not None and node >= 0 else None
