"""Runs the observe pass: records the amounts that sessions hold, for fair share and reports, and deletes expired
data."""

from __future__ import annotations

import os
import socket
import threading
from datetime import datetime, timedelta

from django.utils import timezone

from backendai.domain.cluster.services import release_lease, take_lease
from backendai.domain.usage.services import observe
from backendai.domain.usage.thinning import thin
from backendai.portal.loops.repair.retention import delete_expired

OBSERVE_LEASE = "observe"
_LEASE = timedelta(seconds=60)


def run_observe(now: datetime) -> int:
    """Record the amounts that kernels held since the last pass; returns how many kernels. Also thins out old samples,
    and deletes expired logs, history and audit entries. 0 if another process runs the pass."""
    owner = f"{socket.gethostname()[:24]}:{os.getpid()}:{threading.get_ident()}"
    if not take_lease(OBSERVE_LEASE, owner, now=now, duration=_LEASE):
        return 0
    try:
        counted = observe(now)
        thin(now)
        delete_expired(now)
        return counted
    finally:
        release_lease(OBSERVE_LEASE, owner, now=timezone.now())
