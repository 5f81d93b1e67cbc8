"""The pass over inference endpoints. Beat (every 2 s), hints and the clock call it."""

from __future__ import annotations

import os
import socket
import threading
from datetime import datetime, timedelta

from django.utils import timezone

from backendai.cluster.services import release_lease, take_lease
from backendai.serving.models import Endpoint
from backendai.serving.reading import read_picture
from backendai.serving.services.acting import act
from backendai.serving.services.following import follow

SERVING_LEASE = "serving"
_LEASE = timedelta(seconds=30)


def run_serving(now: datetime) -> int:
    """Update replicas from their sessions, and start or drain replicas as each endpoint needs. Returns how many
    changed, 0 if another process runs the pass or there is no endpoint."""
    if not Endpoint.objects.unfinished().exists():
        return 0
    owner = f"{socket.gethostname()[:24]}:{os.getpid()}:{threading.get_ident()}"
    if not take_lease(SERVING_LEASE, owner, now=now, duration=_LEASE):
        return 0
    try:
        moved = follow(read_picture(now))
        return moved + act(read_picture(now))
    finally:
        release_lease(SERVING_LEASE, owner, now=timezone.now())
