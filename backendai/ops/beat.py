"""Schedulers of Celery's beat. One survives a clock that is set back, one touches a file after every tick."""

from __future__ import annotations

from typing import Any

from celery.beat import Scheduler
from django.conf import settings

from backendai.ops.alive import BEAT_MARK


class SteadyScheduler(Scheduler):
    """Celery's scheduler without a file.

    Celery's own would send nothing for an hour after the clock is set back by an hour.
    """

    def tick(self, *args: Any, **kwargs: Any) -> float:
        """Send the due tasks; return the seconds until the next tick."""
        entries: list[Any] = list(self.schedule.values())
        early = [entry for entry in entries if entry.last_run_at > entry.default_now()]
        for entry in early:
            entry.last_run_at = entry.default_now() - entry.schedule.run_every
        if early:
            self.populate_heap()  # anew, by the times above
        return float(super().tick(*args, **kwargs))


class MarkingScheduler(SteadyScheduler):
    """A scheduler that touches a file after every tick, for monitoring.

    ``python -m backendai.ops.alive beat`` reads its time.
    """

    def tick(self, *args: Any, **kwargs: Any) -> float:
        """Send the due tasks, and touch the file; return the seconds until the next tick."""
        delay = super().tick(*args, **kwargs)
        (settings.DATA_DIR / BEAT_MARK).touch()
        return delay
