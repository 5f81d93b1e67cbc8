"""Runs replays of the page What if, each in a process of its own, as one keeps a processor busy for minutes."""

from __future__ import annotations

import logging
import subprocess
import sys
import threading
from datetime import datetime
from uuid import UUID

from django.conf import settings
from django.db import connection
from django.utils import timezone

from backendai.base.core.messages import Message
from backendai.base.wire.broker.hints import hint
from backendai.base.wire.broker.queues import CONTROL_QUEUE
from backendai.domain.activity.jobs import finish_job
from backendai.domain.forecasts.what_if import LONGEST, waiting_what_ifs
from backendai.portal.loops.outages import log_failure

logger = logging.getLogger(__name__)

_one_at_a_time = threading.Lock()


def begin(job_id: UUID) -> None:
    """Run a replay in the background. While this process runs another one, this does nothing; the repair pass requests
    it again."""
    if _one_at_a_time.acquire(blocking=False):
        threading.Thread(target=_run, args=(job_id,), name="what-if", daemon=True).start()


def request_what_ifs(now: datetime) -> int:
    """Send hints for replays that have not started. Returns 0, as this rule of the repair pass repairs nothing."""
    for job_id in waiting_what_ifs():
        hint("controller.run_what_if", str(job_id), queue=CONTROL_QUEUE)
    return 0


def _run(job_id: UUID) -> None:
    command = [sys.executable, "-m", "django", "replay", "--job", str(job_id)]
    try:
        done = subprocess.run(
            command, cwd=settings.BASE_DIR, capture_output=True, text=True, timeout=LONGEST.total_seconds(), check=False
        )
        if done.returncode:
            logger.error("the replay %s ended with %s: %s", job_id, done.returncode, done.stderr[-2000:])
            finish_job(job_id, message=Message("The replay ended early."), now=timezone.now(), failed=True)
    except Exception as error:
        log_failure(logger, error, "the replay %s failed", job_id)
    finally:
        connection.close()
        _one_at_a_time.release()
