"""The rules of a backend about mounts."""

from __future__ import annotations

import os
from dataclasses import dataclass

KERNEL_USER = 1000


@dataclass(frozen=True, slots=True)
class MountRules:
    """A backend's rules about mounts. ``uids``: users whose files its kernels can own. ``attaches``: the processes that
    start kernels see mounts which the agent attaches. ``fault``: the reason why it mounts nothing."""

    uids: frozenset[int] = frozenset()
    read_only: bool = True
    attaches: bool = False
    fault: str = ""


def usual_uids() -> frozenset[int]:
    """Return the users whose files kernels can own: the default user, and an unprivileged agent's own."""
    return frozenset({KERNEL_USER} if os.geteuid() == 0 else {KERNEL_USER, os.geteuid()})
