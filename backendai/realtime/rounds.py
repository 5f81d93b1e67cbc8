"""Looks every two seconds, for all open websockets of this process at once, whether somebody's credentials changed."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import defaultdict
from collections.abc import Hashable, Iterator
from weakref import WeakKeyDictionary

from channels.db import database_sync_to_async
from django.db import Error
from django.utils import timezone

from backendai.accounts.standing import Standing, signs_of

logger = logging.getLogger(__name__)

LOOK_SECONDS = 2.0


class Rounds:
    """One per event loop: a few queries per look, however many sockets are open. It says only that something changed;
    each socket then asks for itself whether it may stay."""

    def __init__(self) -> None:
        self._open: defaultdict[Standing, set[asyncio.Event]] = defaultdict(set)
        self._signs: dict[Standing, Hashable] = {}
        self._looker: asyncio.Task[None] | None = None

    @contextlib.contextmanager
    def watching(self, standing: Standing) -> Iterator[asyncio.Event]:
        """Give an event that is set when the answer for this standing may have changed; and once at the first look,
        because it may have changed before that."""
        changed = asyncio.Event()
        self._open[standing].add(changed)
        if self._looker is None or self._looker.done():
            self._looker = asyncio.create_task(self._look_for_ever())
        try:
            yield changed
        finally:
            self._open[standing].discard(changed)
            if not self._open[standing]:
                del self._open[standing]
                self._signs.pop(standing, None)
            if not self._open:
                self._looker.cancel()
                self._looker = None

    async def _look_for_ever(self) -> None:
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            try:
                await self._look()
            except Error as error:  # unknown is not refused
                logger.warning("open websockets not looked at: %s", error)

    async def _look(self) -> None:
        signs = await database_sync_to_async(signs_of)(list(self._open), timezone.now())
        for standing, sign in signs.items():
            if standing in self._open and (standing not in self._signs or self._signs[standing] != sign):
                self._signs[standing] = sign
                for changed in self._open[standing]:
                    changed.set()


_by_loop: WeakKeyDictionary[asyncio.AbstractEventLoop, Rounds] = WeakKeyDictionary()


def rounds() -> Rounds:
    """Return those of the running loop."""
    return _by_loop.setdefault(asyncio.get_running_loop(), Rounds())
