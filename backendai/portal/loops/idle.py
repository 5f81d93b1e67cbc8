"""The idle pass: warns owners of idle sessions, and ends sessions after the warning time."""

from __future__ import annotations

from datetime import datetime, timedelta

from backendai.domain.planning.idle.actions import act_on_idle
from backendai.domain.planning.idle.reading import check_idle
from backendai.portal.loops.loops import single

IDLE_LEASE = "idle"
_LEASE = timedelta(seconds=60)


def run_idle(now: datetime) -> int:
    """Check all running sessions against their idle checkers; returns how many warnings, withdrawals and ends were
    written. 0 if another process runs the pass."""
    return single(IDLE_LEASE, now, lambda: act_on_idle(check_idle(now)), duration=_LEASE)
