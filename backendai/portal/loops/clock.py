"""A clock thread in the control worker. It runs the passes when beat and the broker deliver nothing."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any

from celery import bootsteps
from django.conf import settings
from django.db import close_old_connections
from django.utils import timezone

from backendai.base.process.metrics_access import Scrapers, serve_apart
from backendai.domain.cluster.services import last_pass_at
from backendai.portal.loops import folders, forecasts, idle, loops, outages
from backendai.portal.loops.counts import registry
from backendai.portal.loops.repair import observe

logger = logging.getLogger(__name__)

_LOOK_EVERY = 1.0
_SILENCE = timedelta(seconds=4)


class ClockStep(bootsteps.StartStopStep):
    """A thread of the control worker that checks once a second for overdue passes and runs them."""

    requires = ("celery.worker.components:Pool",)

    def __init__(self, worker: Any, **kwargs: Any) -> None:
        super().__init__(worker, **kwargs)
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self, worker: Any) -> None:
        """Start the thread, and one for the metrics where they are asked for."""
        scrapers = Scrapers(settings.METRICS_TOKEN, tuple(settings.METRICS_NETWORKS))
        serve_apart(settings.CONTROL_METRICS, registry, scrapers)
        self._thread = threading.Thread(target=self._run, name="control-clock", daemon=True)
        self._thread.start()

    def stop(self, worker: Any) -> None:
        """Stop the thread; waits up to 30 s for a running pass."""
        self._stop.set()
        if self._thread:
            self._thread.join(timeout=30)

    def _run(self) -> None:
        while not self._stop.wait(_LOOK_EVERY):
            try:
                tick()
                outages.note_answer()
            except Exception as error:
                outages.log_failure(logger, error, "the clock's pass failed")
            finally:
                close_old_connections()


def tick(clock: Callable[[], datetime] = timezone.now) -> None:
    """Run each pass that is overdue."""
    now = clock()
    if _overdue(loops.PASS_LEASE, _SILENCE, clock):
        loops.run_pass(now)
    if _overdue(loops.REPAIR_LEASE, settings.REPAIR_INTERVAL + _SILENCE, clock):
        loops.run_repair(now)
    if _overdue(observe.OBSERVE_LEASE, settings.OBSERVE_INTERVAL + _SILENCE, clock):
        observe.run_observe(now)
    if _overdue(idle.IDLE_LEASE, settings.IDLE_INTERVAL + _SILENCE, clock):
        idle.run_idle(now)
    if _overdue(loops.SERVING_LEASE, _SILENCE, clock):
        loops.run_serving(now)
    if _overdue(loops.PIPELINES_LEASE, _SILENCE, clock):
        loops.run_pipelines(now)
    if _overdue(folders.FOLDERS_LEASE, settings.FOLDERS_INTERVAL + _SILENCE, clock):
        folders.begin(now)
    # Last, as it may take seconds with many agents.
    if _overdue(forecasts.FORECASTS_LEASE, settings.FORECAST_INTERVAL + _SILENCE, clock):
        forecasts.run_forecasts(now)


def _overdue(lease: str, silence: timedelta, clock: Callable[[], datetime]) -> bool:
    """Return whether the last pass ended more than ``silence`` ago, or its end is unknown. An end in the future counts
    as unknown, as the clock was set back."""
    last = last_pass_at(lease)  # read before the clock, as another worker may end a pass in between
    return last is None or not timedelta(0) <= clock() - last <= silence
