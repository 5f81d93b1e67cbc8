"""Deletes registry tags of deleted images. It has its own thread, as a registry can be slow."""

from __future__ import annotations

import logging
import threading
from datetime import datetime
from uuid import UUID

from django.db import connection
from django.utils import timezone

from backendai.base.wire.broker.hints import hint
from backendai.base.wire.broker.queues import CONTROL_QUEUE
from backendai.domain.catalog.tags import remove_tag, waiting_removals
from backendai.portal.loops.outages import log_failure

logger = logging.getLogger(__name__)

_one_at_a_time = threading.Lock()


def begin() -> None:
    """Delete registry tags of deleted images in a background thread. While this process is deleting tags, this does
    nothing; the repair pass requests the deletion again."""
    if _one_at_a_time.acquire(blocking=False):
        threading.Thread(target=_run, name="tags", daemon=True).start()


def request_tag_deletions(now: datetime) -> int:
    """Send a hint for tag deletions that have not started. Returns 0, as this rule of the repair pass repairs
    nothing."""
    if waiting_removals():
        hint("controller.remove_tags", queue=CONTROL_QUEUE)
    return 0


def _run() -> None:
    try:
        while jobs := waiting_removals():
            for job_id in jobs:
                _remove(job_id)
    except Exception as error:
        log_failure(logger, error, "tags of deleted images were not taken out")
    finally:
        connection.close()
        _one_at_a_time.release()


def _remove(job_id: UUID) -> None:
    try:
        remove_tag(job_id, timezone.now)
    except Exception as error:  # this job fails when it has been silent for too long; the other jobs continue
        log_failure(logger, error, "the removal %s failed", job_id)
