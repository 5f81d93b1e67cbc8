"""Deletes registry tags of deleted images. It has its own thread, as a registry can be slow."""

from __future__ import annotations

import logging
from datetime import datetime
from uuid import UUID

from django.utils import timezone

from backendai.base.wire.broker.hints import hint
from backendai.base.wire.broker.queues import CONTROL_QUEUE
from backendai.domain.catalog.tags import remove_tag, waiting_removals
from backendai.portal.loops.background import Background
from backendai.portal.loops.outages import log_failure

logger = logging.getLogger(__name__)

_background = Background("tags", "tags of deleted images were not taken out", logger)


def begin() -> None:
    """Delete registry tags of deleted images in a background thread. While this process is deleting tags, this does
    nothing; the repair pass requests the deletion again."""
    _background.begin(_remove_all)


def request_tag_deletions(now: datetime) -> int:
    """Send a hint for tag deletions that have not started. Returns 0, as this rule of the repair pass repairs
    nothing."""
    if waiting_removals():
        hint("controller.remove_tags", queue=CONTROL_QUEUE)
    return 0


def _remove_all() -> None:
    while jobs := waiting_removals():
        for job_id in jobs:
            _remove(job_id)


def _remove(job_id: UUID) -> None:
    try:
        remove_tag(job_id, timezone.now)
    except Exception as error:  # this job fails when it has been silent for too long; the other jobs continue
        log_failure(logger, error, "the removal %s failed", job_id)
