"""The pass that looks for idle sessions: warns their owners, and ends what was warned for long enough."""

from __future__ import annotations

import os
import socket
import threading
from datetime import datetime, timedelta

from django.utils import timezone

from backendai.cluster.services import release_lease, take_lease
from backendai.planning.idle import look_at_idle
from backendai.planning.idle_deeds import act_on_idle

IDLE_LEASE = "idle"
_LEASE = timedelta(seconds=60)


def run_idle(now: datetime) -> int:
    """Look at all running sessions and do what their idle checkers say; returns how many were warned, spared or ended,
    0 when it is done elsewhere."""
    owner = f"{socket.gethostname()[:24]}:{os.getpid()}:{threading.get_ident()}"
    if not take_lease(IDLE_LEASE, owner, now=now, duration=_LEASE):
        return 0
    try:
        return act_on_idle(look_at_idle(now))
    finally:
        release_lease(IDLE_LEASE, owner, now=timezone.now())
