"""The pass that forecasts starts, apart from the scheduler's: no placement waits for it."""

from __future__ import annotations

import logging
import time
from datetime import datetime, timedelta

from backendai.domain.cluster.models import ResourceGroup
from backendai.domain.compute.models import ComputeSession
from backendai.domain.forecasts.foreseeing import forecast_group
from backendai.portal.loops.loops import single
from backendai.portal.loops.outages import is_outage, log_failure

logger = logging.getLogger(__name__)

FORECASTS_LEASE = "forecasts"
_LEASE = timedelta(seconds=120)
_REST = 20  # a group's next forecasts wait this many times longer than its last took: at most 5 % of a core
_CALM = 60  # seconds between looks at a group in which nobody waits: they serve previews of launches only
_ready: dict[int, float] = {}  # by group: the monotonic time of its next forecasts


def run_forecasts(now: datetime) -> int:
    """Forecast the starts of the pending sessions of each group, and what becomes free; returns how many forecasts
    changed. 0 if another process runs the pass."""
    return single(FORECASTS_LEASE, now, lambda: _all_groups(now), duration=_LEASE)


def _all_groups(now: datetime) -> int:
    rows = ComputeSession.objects.pending().order_by().values_list("resource_group_id", flat=True).distinct()
    waiting, moment = set(rows), time.monotonic()
    rests = {group: 0 if group.pk in waiting else _CALM for group in ResourceGroup.objects.all()}
    due = [group for group, rest in rests.items() if _ready.get(group.pk, -rest) + rest <= moment]
    return sum(_one_group(group, now) for group in due)


def _one_group(group: ResourceGroup, now: datetime) -> int:
    began = time.monotonic()
    try:
        return forecast_group(group, now)
    except Exception as error:
        if is_outage(error):
            raise
        log_failure(logger, error, "the starts in resource group %s could not be foreseen", group.name)
        return 0
    finally:
        _ready[group.pk] = time.monotonic() + (time.monotonic() - began) * _REST
