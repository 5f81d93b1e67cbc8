"""The loop over runs of arrays and pipelines, every 2 s by beat, by a hint or by the clock: look, decide, act."""

from __future__ import annotations

from datetime import datetime

from backendai.controller.loops import Line, single
from backendai.pipelines.models import Run
from backendai.pipelines.reading import read_picture
from backendai.pipelines.services.acting import pass_over

PIPELINES_LEASE = "pipelines"
_PATIENCE_SECONDS = 0.5
_line = Line()


def run_pipelines(now: datetime) -> int:
    """Bring every unfinished run nearer to its end; returns how many changed.

    When it returns, a pass has begun after it was called, here or elsewhere, or the next comes in two seconds.
    """
    with _line.turn() as is_ours:
        if not is_ours or not Run.objects.unfinished().exists():
            return 0
        return single(PIPELINES_LEASE, now, lambda: pass_over(read_picture(now)), patience=_PATIENCE_SECONDS)
