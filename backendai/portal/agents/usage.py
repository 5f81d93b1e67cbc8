"""Stores usage reports of agents; errors must never reject a sync or delay it for long."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from datetime import datetime

from backendai.base.wire.messages import SyncUp
from backendai.domain.cluster.models import Agent
from backendai.domain.compute.services.records.traffic import note_work
from backendai.domain.usage.recording import keep

logger = logging.getLogger(__name__)


def take_work(syncs: Iterable[tuple[Agent, SyncUp]], now: datetime) -> None:
    """Record that kernels of these agents execute code, which counts as use of their sessions. Errors are logged, and
    the data is then lost."""
    working = {agent.pk: up.working for agent, up in syncs if up.working}
    if not working:
        return
    try:
        note_work(working, now)
    except Exception:
        logger.exception("that code runs on %d agents was not noted", len(working))


def take_usage(syncs: Iterable[tuple[Agent, SyncUp]], now: datetime) -> int:
    """Store the usage reports of these syncs; returns how many samples were new. Errors are logged, and the data is
    then lost."""
    reports = [(agent, up.usage) for agent, up in syncs if up.usage is not None and up.usage.kernels]
    if not reports:
        return 0
    try:
        return keep(reports, now)
    except Exception:
        logger.exception("what %d agents said about the use of their kernels was not kept", len(reports))
        return 0
