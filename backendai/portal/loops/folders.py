"""Runs the pass over folders and storage hosts every 30 s. It has its own thread, as a storage host can hang."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from datetime import datetime, timedelta

from backendai.domain.storage.services.folder_copies import due_fills
from backendai.domain.storage.services.upkeep import deliver_due, empty_trash, list_unknown, look_at_hosts, measure_due
from backendai.portal.loops import folder_copies as filling
from backendai.portal.loops.background import Background
from backendai.portal.loops.loops import single
from backendai.portal.loops.outages import log_failure

logger = logging.getLogger(__name__)

FOLDERS_LEASE = "folders"
_LEASE = timedelta(seconds=120)
_LONGEST_SECONDS = 60.0  # then the next pass continues
_background = Background("folders", "the pass over folders failed", logger)


def begin(now: datetime) -> None:
    """Start the pass in the background, unless this process is running one."""
    _background.begin(run_folders, now)


def run_folders(now: datetime, *, clock: Callable[[], float] = time.monotonic) -> int:
    """Check all storage hosts and run waiting work; returns how many folders changed. A failed rule is logged and does
    not stop the others. 0 if another process runs the pass."""
    until = clock() + _LONGEST_SECONDS
    return single(FOLDERS_LEASE, now, lambda: _changed(now, lambda: clock() < until), duration=_LEASE)


def _changed(now: datetime, has_time: Callable[[], bool]) -> int:
    hosts = look_at_hosts(now, has_time)
    rules: list[Callable[[], int]] = [
        lambda: empty_trash(now),
        lambda: deliver_due(hosts, now, has_time),
        lambda: measure_due(hosts, now, has_time),
    ]
    changed = sum(_apply(rule) for rule in rules)
    _apply(lambda: list_unknown(hosts, now, has_time))
    if due_fills(now):
        filling.begin()
    return changed


def _apply(rule: Callable[[], int]) -> int:
    try:
        return rule()
    except Exception as error:
        log_failure(logger, error, "a rule of the pass over folders failed")
        return 0
