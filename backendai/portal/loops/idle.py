"""The idle pass: warns owners of idle sessions, and ends sessions after the warning time."""

from __future__ import annotations

import os
import socket
import threading
from datetime import datetime, timedelta

from django.utils import timezone

from backendai.domain.cluster.services import release_lease, take_lease
from backendai.domain.planning.idle.actions import act_on_idle
from backendai.domain.planning.idle.reading import check_idle

IDLE_LEASE = "idle"
_LEASE = timedelta(seconds=60)


def run_idle(now: datetime) -> int:
    """Check all running sessions against their idle checkers; returns how many warnings, withdrawals and ends were
    written. 0 if another process runs the pass."""
    owner = f"{socket.gethostname()[:24]}:{os.getpid()}:{threading.get_ident()}"
    if not take_lease(IDLE_LEASE, owner, now=now, duration=_LEASE):
        return 0
    try:
        return act_on_idle(check_idle(now))
    finally:
        release_lease(IDLE_LEASE, owner, now=timezone.now())
