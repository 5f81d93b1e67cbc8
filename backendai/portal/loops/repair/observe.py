"""Runs the observe pass: records the amounts that sessions hold, for fair share and reports, and deletes expired
data."""

from __future__ import annotations

from datetime import datetime, timedelta

from backendai.domain.usage.services import observe
from backendai.domain.usage.thinning import thin
from backendai.portal.loops.loops import single
from backendai.portal.loops.repair.retention import delete_expired

OBSERVE_LEASE = "observe"
_LEASE = timedelta(seconds=60)


def run_observe(now: datetime) -> int:
    """Record the amounts that kernels held since the last pass; returns how many kernels. Also thins out old samples,
    and deletes expired logs, history and audit entries. 0 if another process runs the pass."""
    return single(OBSERVE_LEASE, now, lambda: _observed(now), duration=_LEASE)


def _observed(now: datetime) -> int:
    counted = observe(now)
    thin(now)
    delete_expired(now)
    return counted
