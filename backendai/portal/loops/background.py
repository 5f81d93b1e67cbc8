"""Work that a pass starts and does not wait for, as another machine may be slow."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

from django.db import connection

from backendai.portal.loops.outages import log_failure


class Background:
    """Runs work in threads of its own, ``most`` at once. ``fault``: what the log says of a fault,
    with the work's arguments for ``{}``.

    While ``most`` run in this process, further work is left to a later pass.
    """

    def __init__(self, name: str, fault: str, logger: logging.Logger, *, most: int = 1) -> None:
        self._name, self._fault, self._logger = name, fault, logger
        self._free = threading.BoundedSemaphore(most)

    def begin(self, work: Callable[..., object], *arguments: object) -> None:
        """Start the work, unless ``most`` run."""
        if self._free.acquire(blocking=False):
            threading.Thread(target=self._run, args=(work, arguments), name=self._name, daemon=True).start()

    def _run(self, work: Callable[..., object], arguments: tuple[object, ...]) -> None:
        try:
            work(*arguments)
        except Exception as error:
            log_failure(self._logger, error, self._fault.format(*arguments))
        finally:
            connection.close()
            self._free.release()
