"""Scans of registries, each in a thread of its own: they take minutes, and no pass may wait for them."""

from __future__ import annotations

import logging
import threading
from datetime import datetime
from uuid import UUID

from django.db import connection
from django.utils import timezone

from backendai.catalog.scanning import scan, waiting_scans
from backendai.controller.outages import log_failure
from backendai.wire.broker import hint
from backendai.wire.queues import CONTROL_QUEUE

logger = logging.getLogger(__name__)

_one_at_a_time = threading.Lock()


def begin(job_id: UUID) -> None:
    """Carry the scan out in the background; while another one goes on in this process, it waits for a later hint."""
    if _one_at_a_time.acquire(blocking=False):
        threading.Thread(target=_run, args=(job_id,), name="scan", daemon=True).start()


def hint_again(now: datetime) -> int:
    """Hint once more at scans that nobody has begun; returns 0, for that puts nothing right by itself."""
    for job_id in waiting_scans():
        hint("controller.scan_registry", str(job_id), queue=CONTROL_QUEUE)
    return 0


def _run(job_id: UUID) -> None:
    try:
        scan(job_id, timezone.now)
    except Exception as error:
        log_failure(logger, error, "the scan %s failed", job_id)
    finally:
        connection.close()
        _one_at_a_time.release()
