"""Scans registries, each scan in its own thread, as a scan takes minutes."""

from __future__ import annotations

import logging
from datetime import datetime
from uuid import UUID

from django.utils import timezone

from backendai.base.wire.broker.hints import hint
from backendai.base.wire.broker.queues import CONTROL_QUEUE
from backendai.domain.catalog.scanning import scan, waiting_scans
from backendai.portal.loops.background import Background

logger = logging.getLogger(__name__)

_background = Background("scan", "the scan {} failed", logger)


def begin(job_id: UUID) -> None:
    """Run a registry scan in a background thread. While this process runs another scan, this does nothing; the repair
    pass requests the scan again."""
    _background.begin(_scan, job_id)


def request_scans(now: datetime) -> int:
    """Send hints for scans that have not started. Returns 0, as this rule of the repair pass repairs nothing."""
    for job_id in waiting_scans():
        hint("controller.scan_registry", str(job_id), queue=CONTROL_QUEUE)
    return 0


def _scan(job_id: UUID) -> None:
    scan(job_id, timezone.now)
