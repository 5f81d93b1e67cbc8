"""What a backend can do with mounts."""

from __future__ import annotations

import os
from dataclasses import dataclass

KERNEL_USER = 1000


@dataclass(frozen=True, slots=True)
class MountRules:
    """What a backend can do with mounts. ``uids``: whose files its kernels can own. ``attaches``: mounts that the agent
    attaches are seen by what starts kernels. ``fault``: why it mounts nothing at all."""

    uids: frozenset[int] = frozenset()
    read_only: bool = True
    attaches: bool = False
    fault: str = ""


def usual_uids() -> frozenset[int]:
    """Return whose files kernels can own that run as the usual user, or as the agent's own."""
    return frozenset({KERNEL_USER} if os.geteuid() == 0 else {KERNEL_USER, os.geteuid()})
