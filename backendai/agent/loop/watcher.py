"""Checks kernels as soon as the engine reports an event; a lost event is made up for by the next sync."""

from __future__ import annotations

import logging
import random
import threading
from collections.abc import Callable

from backendai.agent.backends.base import Backend, BackendError
from backendai.agent.kernel_index import Roster
from backendai.agent.loop.kernels import Kernels

logger = logging.getLogger(__name__)

_LONGEST_REST = 30.0


class Watcher:
    """A thread that reads the backend's events. It reconnects, with growing pauses, when the stream ends."""

    def __init__(self, backend: Backend, kernels: Kernels, roster: Roster, *, poke: Callable[[], None]) -> None:
        self._backend, self._kernels, self._roster, self._poke = backend, kernels, roster, poke
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="watch", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Ignore further events; the thread ends with its stream."""
        self._stopped.set()

    def _run(self) -> None:
        rest = 1.0
        while not self._stopped.is_set():
            try:
                for event in self._backend.watch():
                    rest = 1.0
                    if self._stopped.is_set():
                        return
                    self._kernels.look_soon(event.kernel_id, self._roster.generation(event.kernel_id))
            except BackendError as error:
                logger.warning("the engine's events broke off: %s", error.message)
            except Exception:
                logger.exception("watching failed")
            self._stopped.wait(rest * random.uniform(0.5, 1.0))
            rest = min(rest * 2, _LONGEST_REST)
            self._poke()  # the next sync finds what the lost events would have reported
