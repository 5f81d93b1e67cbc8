"""Threads for calls that a disk can block for ever: few, shared fairly, and not waited for at the process's end."""

from __future__ import annotations

import asyncio
import contextlib
import queue
import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any


@dataclass(slots=True, eq=False)
class Call:
    """A call in a thread: its visitor, its time of submission, and the future of its result."""

    work: Callable[[], Any]
    visitor: str
    loop: asyncio.AbstractEventLoop
    answer: asyncio.Future[Any]
    ended: asyncio.Future[None]
    asked_at: float = field(default_factory=time.monotonic)
    is_running: bool = False


class Workers:
    """Up to ``most`` threads, started on demand; each visitor gets up to ``each`` of them. Further calls wait, and
    visitors take turns. Its methods are for the event loop's thread."""

    def __init__(self, name: str, most: int, each: int | None = None) -> None:
        self._name, self._most, self._each = name, most, each or most
        self._ready: queue.SimpleQueue[Call] = queue.SimpleQueue()
        self._calls: set[Call] = set()
        self._waiting: dict[str, dict[Call, None]] = {}  # of each visitor; the next visitor is first
        self._taken: Counter[str] = Counter()  # threads of each visitor
        self._threads = 0

    def submit(self, work: Callable[[], Any], visitor: str = "") -> Call:
        """Return a call, which runs when a thread is free. ``visitor``: who shares the threads with others; calls
        without one have no limit of their own."""
        loop = asyncio.get_running_loop()
        call = Call(work, visitor, loop, loop.create_future(), loop.create_future())
        self._calls.add(call)
        self._waiting.setdefault(visitor, {})[call] = None
        call.ended.add_done_callback(lambda _: self._calls.discard(call))
        call.answer.add_done_callback(lambda _: self._drop(call))
        self._hand_out()
        return call

    def _hand_out(self) -> None:
        """Give waiting calls to free threads, a call of each visitor in turn."""
        while self._taken.total() < self._most and (call := self._next()) is not None:
            self._taken[call.visitor] += 1
            if self._threads < self._taken.total():
                self._threads += 1
                threading.Thread(target=self._run, name=f"{self._name}-{self._threads}", daemon=True).start()
            self._ready.put(call)

    def _next(self) -> Call | None:
        for visitor, calls in self._waiting.items():
            if not visitor or self._taken[visitor] < self._each:
                del self._waiting[visitor]
                call = next(iter(calls))
                del calls[call]
                if calls:
                    self._waiting[visitor] = calls  # behind the other visitors
                return call
        return None

    def _drop(self, call: Call) -> None:
        """Take a call that was answered while it waited out of the row."""
        calls = self._waiting.get(call.visitor, {})
        if call in calls:
            del calls[call]
            if not calls:
                del self._waiting[call.visitor]
            call.ended.set_result(None)

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
            call = self._ready.get()
            call.is_running = True
            result, error = None, None
            if not call.answer.done():  # cancelled or abandoned meanwhile
                try:
                    result = call.work()
                except BaseException as raised:  # any exception is passed to the caller
                    error = raised
            with contextlib.suppress(RuntimeError):  # the loop is closed, as the server has ended
                call.loop.call_soon_threadsafe(self._finish, call, result, error)
            del call, result, error

    def _finish(self, call: Call, result: Any, error: BaseException | None) -> None:
        self._taken[call.visitor] -= 1
        if not self._taken[call.visitor]:
            del self._taken[call.visitor]
        self._hand_out()
        if not call.ended.done():
            call.ended.set_result(None)
        if call.answer.done():
            return
        if error is not None:
            call.answer.set_exception(error)
        else:
            call.answer.set_result(result)
