"""Scans registries, each scan in its own thread, as a scan takes minutes."""

from __future__ import annotations

import logging
import threading
from datetime import datetime
from uuid import UUID

from django.db import connection
from django.utils import timezone

from backendai.base.wire.broker.hints import hint
from backendai.base.wire.broker.queues import CONTROL_QUEUE
from backendai.domain.catalog.scanning import scan, waiting_scans
from backendai.portal.loops.outages import log_failure

logger = logging.getLogger(__name__)

_one_at_a_time = threading.Lock()


def begin(job_id: UUID) -> None:
    """Run a registry scan in a background thread. While this process runs another scan, this does nothing; the repair
    pass requests the scan again."""
    if _one_at_a_time.acquire(blocking=False):
        threading.Thread(target=_run, args=(job_id,), name="scan", daemon=True).start()


def request_scans(now: datetime) -> int:
    """Send hints for scans that have not started. Returns 0, as this rule of the repair pass repairs nothing."""
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
