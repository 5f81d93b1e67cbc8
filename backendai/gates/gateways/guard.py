"""Checks access, and repeats the check every few seconds while a connection is open.

Answers of the database are cached for a moment. While the database is unreachable, recently admitted connections
continue and new ones wait.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections import defaultdict
from collections.abc import Awaitable, Callable, Hashable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from typing import Any, Generic, TypeVar

from django.db import Error, close_old_connections
from django.utils import timezone

from backendai.domain.accounts.sign_in.credentials import Credential, fingerprints_of
from backendai.gates.gateways.targets import Denied, Guarded

logger = logging.getLogger(__name__)

RECHECK_SECONDS = 10.0
LOOK_SECONDS = 2.0
TRUSTED_SECONDS = 50.0  # without a database; access must end within a minute
_THREADS = 4
_Answer = TypeVar("_Answer")
_Key = TypeVar("_Key", bound=Hashable)
_Target = TypeVar("_Target", bound=Guarded)


class Unknown(Exception):
    """The database is unreachable now, or the guard is closed."""


class Guard(Generic[_Key, _Target]):
    """Caches allowed access, and cuts connections whose access has ended.

    ``open_at`` returns the target that a key (credential and destination) may reach now; it runs in a thread and raises
    Denied.
    """

    def __init__(self, open_at: Callable[[_Key, datetime], _Target]) -> None:
        self._open_at = open_at
        self._threads = ThreadPoolExecutor(_THREADS, thread_name_prefix="guard")
        self._known: dict[_Key, tuple[_Target, float]] = {}
        self._stale: set[_Key] = set()  # known, and to be asked again before anything new opens
        self._asking: dict[_Key, asyncio.Task[_Target]] = {}
        self._fingerprints: dict[Credential, Hashable] = {}
        self._open: defaultdict[_Key, set[asyncio.Task[Any]]] = defaultdict(set)
        self._is_closed = False

    async def target(self, key: _Key) -> _Target:
        """Return the target that the key may reach. Raises Denied and Unknown."""
        target, at = self._known.get(key, (None, 0.0))
        age = time.monotonic() - at
        is_over = target is not None and target.is_over(timezone.now())
        is_fresh = key not in self._stale and not is_over
        if target is not None and is_fresh and age < min(RECHECK_SECONDS, target.recheck_seconds):
            return target
        try:
            return await self._look(key)
        except Unknown:
            if target is None or age > TRUSTED_SECONDS or is_over:
                raise
            return target

    @contextlib.contextmanager
    def watching(self, key: _Key) -> Iterator[None]:
        """Cancel the current task as soon as the key may reach nothing any more."""
        task = asyncio.current_task()
        assert task is not None
        self._open[key].add(task)
        try:
            yield
        finally:
            self._open[key].discard(task)
            if not self._open[key]:
                del self._open[key]

    async def watch(self) -> None:
        """Check all open connections forever: at intervals, and at once when their credentials change.

        A failed round is logged, and the next one follows. A loop without queries cuts connections whose answer is too
        old, so that a hanging database keeps nothing open.
        """
        await asyncio.gather(
            _for_ever(self._recheck_all, RECHECK_SECONDS),
            _for_ever(self._look_for_changes, LOOK_SECONDS),
            _for_ever(self._cut_unproved, LOOK_SECONDS),
        )

    async def _recheck_all(self) -> None:
        await asyncio.gather(*(self._recheck(key) for key in list(self._open)))
        oldest = time.monotonic() - TRUSTED_SECONDS
        self._known = {key: entry for key, entry in self._known.items() if entry[1] > oldest}
        self._stale &= self._known.keys()

    async def _look_for_changes(self) -> None:
        now = timezone.now()
        await asyncio.gather(*(self._recheck(key) for key in list(self._open) if self._is_due(key, now)))
        with contextlib.suppress(Unknown):
            await self._look_at_credentials()

    async def _cut_unproved(self) -> None:
        oldest = time.monotonic() - TRUSTED_SECONDS
        for key in [key for key in self._open if key not in self._known or self._known[key][1] < oldest]:
            if not all(task.cancelling() for task in self._open[key]):  # those are cut already, as they are not allowed
                logger.warning("a connection is cut off: for too long nobody could say whether it is still allowed")
                self._cut(key)

    def _is_due(self, key: _Key, now: datetime) -> bool:
        target, at = self._known.get(key, (None, 0.0))
        return target is not None and (target.is_over(now) or time.monotonic() - at >= target.recheck_seconds)

    async def _look_at_credentials(self) -> None:
        """Drop answers whose credentials changed, and check open connections with these credentials again. A few
        queries for all."""
        credentials = {key: target.credential for key, (target, _) in self._known.items()}
        now = set(credentials.values())
        fingerprints = await self.ask(lambda: fingerprints_of(now, timezone.now()))
        # What is seen for the first time may have changed just before.
        changed = {one for one in now if one not in self._fingerprints or self._fingerprints[one] != fingerprints[one]}
        self._fingerprints = fingerprints
        stale = {key for key, credential in credentials.items() if credential in changed}
        self._stale |= self._known.keys() & stale
        await asyncio.gather(*(self._recheck(key) for key in stale if key in self._open))

    def close(self) -> None:
        """Cut all connections, and end the threads. Later queries raise Unknown: a server closes the guard before its
        last requests have ended."""
        self._is_closed = True
        for task in [task for tasks in self._open.values() for task in tasks]:
            task.cancel()
        self._threads.shutdown(wait=False, cancel_futures=True)

    async def _recheck(self, key: _Key) -> None:
        try:
            await self._look(key)
        except Unknown:
            target, _ = self._known.get(key, (None, 0.0))
            if target is not None and target.is_over(timezone.now()):
                self._cut(key)
        except Denied:
            self._cut(key)

    def _cut(self, key: _Key) -> None:
        for task in list(self._open.get(key, ())):
            task.cancel()

    async def _look(self, key: _Key) -> _Target:
        """Query what the key may reach, once for all concurrent callers with the same key."""
        task = self._asking.get(key)
        if task is None:
            task = self._asking[key] = asyncio.create_task(self._look_up(key))
            task.add_done_callback(lambda _: self._asking.pop(key, None))
        return await asyncio.shield(task)

    async def _look_up(self, key: _Key) -> _Target:
        asked_at = time.monotonic()
        try:
            target = await self.ask(lambda: self._open_at(key, timezone.now()))
        except Denied:
            self._known.pop(key, None)
            self._stale.discard(key)
            raise
        self._known[key] = (target, asked_at)
        self._stale.discard(key)
        return target

    async def ask(self, question: Callable[[], _Answer]) -> _Answer:
        """Return the result of a database query. Raises Unknown, also if the query itself fails; such failures are
        logged."""

        def ask() -> _Answer:
            close_old_connections()
            try:
                return question()
            finally:
                close_old_connections()

        if self._is_closed:
            raise Unknown
        try:
            return await asyncio.get_running_loop().run_in_executor(self._threads, ask)
        except Denied:
            raise
        except Error as error:
            logger.warning("the database does not answer: %s", error)
            raise Unknown from error
        except Exception as error:
            logger.exception("a question to the database failed")
            raise Unknown from error


async def _for_ever(look: Callable[[], Awaitable[None]], seconds: float) -> None:
    while True:
        await asyncio.sleep(seconds)
        try:
            await look()
        except Exception:
            logger.exception("a round of looking again failed")
