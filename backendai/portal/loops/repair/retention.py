"""Deletes expired logs, history, runs and audit entries. A failed rule does not stop the others."""

from __future__ import annotations

import logging
from collections.abc import Callable
from datetime import datetime

from backendai.domain.accounts.answers import delete_old_answers
from backendai.domain.accounts.services.devices import delete_ended_requests
from backendai.domain.activity.access_notices import delete_old_access_notices
from backendai.domain.activity.services import delete_old_audit
from backendai.domain.compute.services.records.retention import (
    delete_logs_beyond_share,
    delete_old_history,
    delete_old_logs,
)
from backendai.domain.forecasts.learning import delete_old_lengths
from backendai.domain.forecasts.scoring import delete_old_forecasts
from backendai.domain.pipelines.services.retention import delete_old_runs
from backendai.domain.serving.services.readings import delete_old_readings
from backendai.domain.serving.services.unused import delete_ended_replicas, delete_old_records
from backendai.portal.loops.outages import log_failure

logger = logging.getLogger(__name__)

RULES: tuple[Callable[[datetime], int], ...] = (
    delete_old_logs,
    delete_logs_beyond_share,
    delete_old_history,
    delete_old_access_notices,
    delete_old_answers,
    delete_old_audit,
    delete_old_lengths,
    delete_old_forecasts,
    delete_ended_requests,
    delete_old_readings,
    delete_old_runs,
    delete_old_records,
    delete_ended_replicas,
)


def delete_expired(now: datetime) -> int:
    """Delete a bounded number of expired and excess rows; returns how many."""
    return sum(_apply(rule, now) for rule in RULES)


def _apply(rule: Callable[[datetime], int], now: datetime) -> int:
    try:
        return rule(now)
    except Exception as error:
        log_failure(logger, error, "the retention rule %s failed", rule.__name__)
        return 0
