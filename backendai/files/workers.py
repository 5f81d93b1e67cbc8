"""Threads for calls that a disk can block for ever: few, and not waited for at the process's end."""

from __future__ import annotations

import asyncio
import contextlib
import queue
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any


@dataclass(slots=True, eq=False)
class Call:
    """A call in a thread: its time of submission, and the future of its result."""

    work: Callable[[], Any]
    loop: asyncio.AbstractEventLoop
    answer: asyncio.Future[Any]
    ended: asyncio.Future[None]
    asked_at: float = field(default_factory=time.monotonic)
    is_running: bool = False


class Workers:
    """Up to ``most`` threads, started on demand. Further calls wait."""

    def __init__(self, name: str, most: int) -> None:
        self._name, self._most = name, most
        self._waiting: queue.SimpleQueue[Call] = queue.SimpleQueue()
        self._calls: set[Call] = set()
        self._threads = 0

    def submit(self, work: Callable[[], Any]) -> Call:
        """Return a call, which runs when a thread is free. For the event loop's thread."""
        loop = asyncio.get_running_loop()
        call = Call(work, loop, loop.create_future(), loop.create_future())
        self._calls.add(call)
        call.ended.add_done_callback(lambda _: self._calls.discard(call))
        if self._threads < min(self._most, len(self._calls)):
            self._threads += 1
            threading.Thread(target=self._run, name=f"{self._name}-{self._threads}", daemon=True).start()
        self._waiting.put(call)
        return call

    def oldest(self) -> float | None:
        """Return the submission time of the oldest call in progress; None if there is none."""
        return min((call.asked_at for call in self._calls), default=None)

    def running(self) -> int:
        """Return the number of calls that threads run now."""
        return sum(call.is_running for call in self._calls)

    def give_up(self, error: Callable[[], Exception]) -> None:
        """Raise an error in all waiting callers. Calls that have not started are dropped; running ones stay stuck."""
        for call in list(self._calls):
            if not call.answer.done():
                call.answer.set_exception(error())
                call.answer.exception()  # mark as retrieved, as no caller may be left

    def _run(self) -> None:
        while True:
            call = self._waiting.get()
            call.is_running = True
            result, error = None, None
            if not call.answer.done():  # cancelled or abandoned meanwhile
                try:
                    result = call.work()
                except BaseException as raised:  # any exception is passed to the caller
                    error = raised
            with contextlib.suppress(RuntimeError):  # the loop is closed, as the server has ended
                call.loop.call_soon_threadsafe(_finish, call, result, error)
            del call, result, error


def _finish(call: Call, result: Any, error: BaseException | None) -> None:
    if not call.ended.done():
        call.ended.set_result(None)
    if call.answer.done():
        return
    if error is not None:
        call.answer.set_exception(error)
    else:
        call.answer.set_result(result)
