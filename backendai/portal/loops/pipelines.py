"""Runs the pass over arrays and pipelines. Beat (every 2 s), hints and the clock thread call it."""

from __future__ import annotations

from datetime import datetime

from backendai.domain.pipelines.models import Run
from backendai.domain.pipelines.reading import read_runs
from backendai.domain.pipelines.services.acting import pass_over
from backendai.portal.loops.loops import Line, single

PIPELINES_LEASE = "pipelines"
_PATIENCE_SECONDS = 0.5
_line = Line()


def run_pipelines(now: datetime) -> int:
    """Advance every unfinished run; returns how many changed.

    Of concurrent calls in this process one runs and one waits; further calls return 0, as the waiting call reads after
    their writes. If another process keeps the pass beyond ``_PATIENCE_SECONDS``, the next pass comes in two seconds.
    """
    with _line.turn() as is_ours:
        if not is_ours or not Run.objects.unfinished().exists():
            return 0
        return single(PIPELINES_LEASE, now, lambda: pass_over(read_runs(now)), patience=_PATIENCE_SECONDS)
