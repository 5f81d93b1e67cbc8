"""The schedulers of beat: one that bears a clock that is set back, and one that leaves a mark after every tick."""

from __future__ import annotations

from typing import Any

from celery.beat import Scheduler
from django.conf import settings

from backendai.ops.alive import BEAT_MARK


class SteadyScheduler(Scheduler):
    """Celery's scheduler without a file, which would send nothing for an hour when the clock is set back by one."""

    def tick(self, *args: Any, **kwargs: Any) -> float:
        """Send what is due; returns the seconds until the next time."""
        entries: list[Any] = list(self.schedule.values())
        early = [entry for entry in entries if entry.last_run_at > entry.default_now()]
        for entry in early:
            entry.last_run_at = entry.default_now() - entry.schedule.run_every
        if early:
            self._heap = None  # it is filled anew, by the times above
        return float(super().tick(*args, **kwargs))


class MarkingScheduler(SteadyScheduler):
    """Where others watch over beat; ``python -m backendai.ops.alive beat`` reads the mark."""

    def tick(self, *args: Any, **kwargs: Any) -> float:
        """Send what is due; returns the seconds until the next time."""
        delay = super().tick(*args, **kwargs)
        (settings.DATA_DIR / BEAT_MARK).touch()
        return delay
