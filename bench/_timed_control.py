"""The control worker's Celery app with the passes of each group timed: a line each with end, seconds and placements."""

from __future__ import annotations

import importlib
import os
import time
from datetime import datetime
from pathlib import Path
from typing import Any

from celery.signals import worker_init

from backendai.celery import app

__all__ = ["app"]


@worker_init.connect
def time_passes(**_: Any) -> None:
    """Put the clock around the passes; Django is set up by now."""
    loops = importlib.import_module("backendai.portal.loops.loops")
    one_group, log = loops._one_group, Path(os.environ["BENCH_PASSES"])

    def timed(group: Any, now: datetime) -> int:
        started_at = time.monotonic()
        placed = one_group(group, now)
        with log.open("a") as file:
            file.write(f"{time.monotonic():.3f} {time.monotonic() - started_at:.4f} {placed}\n")
        return int(placed)

    loops._one_group = timed
