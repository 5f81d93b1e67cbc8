"""Logs one line per database outage instead of a traceback per task."""

from __future__ import annotations

import logging
import threading
from typing import Any

from celery import Task
from django.db import InterfaceError

from backendai.base.db.database_faults import is_away

logger = logging.getLogger(__name__)


def is_outage(error: BaseException) -> bool:
    """Return whether the error means that the database is unreachable, broken connections included."""
    return is_away(error) or (isinstance(error, InterfaceError) and "connection" in str(error))


def log_failure(to: logging.Logger, error: BaseException, text: str, *values: object) -> None:
    """Log a failure with its traceback, unless the database is unreachable."""
    if not note(error):
        to.error(text, *values, exc_info=error)


def note(error: BaseException) -> bool:
    """Return whether the error means a database outage. The first error of an outage is logged as one line."""
    if not is_outage(error):
        return False
    with _changed:
        is_first = not _away.is_set()
        _away.set()
    if is_first:
        cause = str(error).partition("\n")[0]
        logger.error("the database does not answer; passes go on when it does (%s)", cause)
    return True


def note_answer() -> None:
    """Log once that an outage has ended."""
    with _changed:
        was_away = _away.is_set()
        _away.clear()
    if was_away:
        logger.info("the database answers again")


class OutageTask(Task):
    """A task that ends without a traceback during a database outage. The next tick runs it again."""

    abstract = True

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Run the task."""
        try:
            result = super().__call__(*args, **kwargs)
        except Exception as error:
            if not note(error):
                raise
            return None
        note_answer()
        return result


_changed, _away = threading.Lock(), threading.Event()
