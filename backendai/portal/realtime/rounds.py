"""Checks every two seconds whether the credentials of open websockets have changed, for all sockets at once."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterator
from itertools import count
from weakref import WeakKeyDictionary

from channels.db import database_sync_to_async
from django.db import Error
from django.utils import timezone

from backendai.domain.accounts.sign_in.credentials import Credential, fingerprints_of

logger = logging.getLogger(__name__)

LOOK_SECONDS = 2.0


class Rounds:
    """The periodic check of one event loop: a few queries for all its open sockets.

    It only signals a change; each socket then checks its own access.
    """

    def __init__(self) -> None:
        self._open: defaultdict[Credential, set[asyncio.Event]] = defaultdict(set)
        self._fingerprints: dict[Credential, Hashable] = {}
        self._looker: asyncio.Task[None] | None = None
        self._answers: dict[Hashable, _Answer] = {}
        self._order = count(1)

    @contextlib.contextmanager
    def watching(self, credential: Credential) -> Iterator[asyncio.Event]:
        """Yield an event that is set when this credential may have changed.

        It is also set at the first check, as the credential may have changed before.
        """
        changed = asyncio.Event()
        self._open[credential].add(changed)
        if self._looker is None or self._looker.done():
            self._looker = asyncio.create_task(self._look_for_ever())
        try:
            yield changed
        finally:
            self._open[credential].discard(changed)
            if not self._open[credential]:
                del self._open[credential]
                self._fingerprints.pop(credential, None)
            if not self._open:
                self._looker.cancel()
                self._looker = None

    async def shared(self, question: Hashable, ask: Callable[[], bool]) -> bool:
        """Return the result of ``ask``, which runs in a thread.

        Callers with the same question at the same time share a result. It never comes from a call that started before
        theirs.
        """
        answer = self._answers.setdefault(question, _Answer())
        answer.wanted += 1
        asked = next(self._order)
        try:
            async with answer.asking:
                if answer.turn < asked:
                    turn = next(self._order)
                    answer.stays = await database_sync_to_async(ask)()
                    answer.turn = turn
                return answer.stays
        finally:
            answer.wanted -= 1
            if not answer.wanted:
                del self._answers[question]

    async def _look_for_ever(self) -> None:
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            try:
                await self._look()
            except Error as error:  # unknown is not refused
                logger.warning("open websockets not looked at: %s", error)

    async def _look(self) -> None:
        fingerprints = await database_sync_to_async(fingerprints_of)(list(self._open), timezone.now())
        for credential, fingerprint in fingerprints.items():
            if credential in self._open and (
                credential not in self._fingerprints or self._fingerprints[credential] != fingerprint
            ):
                self._fingerprints[credential] = fingerprint
                for changed in self._open[credential]:
                    changed.set()


class _Answer:
    """The last result of a question, when its call started, and the number of waiting callers."""

    def __init__(self) -> None:
        self.asking = asyncio.Lock()
        self.turn = self.wanted = 0
        self.stays = False


_by_loop: WeakKeyDictionary[asyncio.AbstractEventLoop, Rounds] = WeakKeyDictionary()


def rounds() -> Rounds:
    """Return the check of the running event loop."""
    return _by_loop.setdefault(asyncio.get_running_loop(), Rounds())
