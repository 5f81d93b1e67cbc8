"""Hints become calls of the runtime."""

from __future__ import annotations

from unittest.mock import Mock, call
from uuid import uuid4

from celery import Celery

from backendai.agent.loop.worker import _add_tasks


def test_one_hint_starts_all_the_kernels_that_it_names() -> None:
    app, runtime = Celery("agent", set_as_current=False, fixups=[]), Mock()
    _add_tasks(app, runtime)
    first, second = uuid4(), uuid4()
    app.tasks["node.start_kernels"]([[str(first), 1], [str(second), 3]])
    app.tasks["node.start_kernel"](str(first), 2)
    assert runtime.start_kernel.call_args_list == [call(first, 1), call(second, 3), call(first, 2)]
