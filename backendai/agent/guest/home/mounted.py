"""Lists mounted folders in this kernel, to protect them from operations on the home folder."""

from __future__ import annotations

import os
import re
from pathlib import Path

_MOUNTINFO = "/proc/self/mountinfo"
_ESCAPED = re.compile(rb"\\([0-7]{3})")


def mounts_below(place: Path) -> list[str]:
    """Return the mount points at and below a path. Empty for a symbolic link, as deleting a link leaves its target."""
    if place.is_symlink():
        return []
    real = os.path.realpath(place)
    return [point for point in _points() if point == real or point.startswith(real.rstrip("/") + "/")]


def _points() -> list[str]:
    try:
        fields = [line.split()[4] for line in Path(_MOUNTINFO).read_bytes().splitlines()]
    except (OSError, IndexError):
        return []
    return [os.fsdecode(_ESCAPED.sub(lambda found: bytes([int(found[1], 8)]), field)) for field in fields]
