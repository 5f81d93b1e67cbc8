"""Waking the loop that brings runs forward; losing a hint costs two seconds."""

from __future__ import annotations

from backendai.base.wire.broker.hints import hint_on_commit
from backendai.base.wire.broker.queues import CONTROL_QUEUE

TASK = "controller.run_pipelines"


def hint_runs() -> None:
    """Wake the loop after commit."""
    hint_on_commit(TASK, queue=CONTROL_QUEUE)
