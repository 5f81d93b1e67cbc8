"""Keeps the endpoint table in memory and in a file, and updates it from the database.

Without a database the table is used for ``SERVING_TRUST`` seconds after its last confirmation.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar

from django.conf import settings
from django.db import DatabaseError, InterfaceError, close_old_connections
from django.utils import timezone

from backendai.domain.serving.endpoint_table import EndpointTable, from_json, read_sign, read_table

logger = logging.getLogger(__name__)

LOOK_SECONDS, WHOLE_SECONDS, PATIENCE_SECONDS, OPEN_SECONDS, CLOSE_SECONDS = 1.0, 30.0, 10.0, 2.0, 2.0
AGAIN_SECONDS = 0.2
_Answer = TypeVar("_Answer")


class DatabaseUnavailable(Exception):
    """The database does not answer."""


class TableCache:
    """Keeps the newest endpoint table. ``on_change`` is called with each changed table."""

    def __init__(self, path: Path, on_change: Callable[[EndpointTable], None]) -> None:
        self._path, self._on_change = path, on_change
        self._threads = ThreadPoolExecutor(2, thread_name_prefix="endpoints")
        self.table, self._read_at, self._confirmed_at = EndpointTable(), 0.0, 0.0
        self._is_away = False
        self._turn, self._looked_at = asyncio.Lock(), -AGAIN_SECONDS
        self._next: asyncio.Task[bool] | None = None  # the next read, not started yet
        self._looks: set[asyncio.Task[bool]] = set()

    @property
    def is_trusted(self) -> bool:
        """Return whether the database confirmed the table within ``SERVING_TRUST`` seconds. Uses the wall clock, as
        the file outlives the process.
        """
        return time.time() - self._confirmed_at <= settings.SERVING_TRUST

    async def open(self) -> None:
        """Load the endpoint table from the file, then from the database. If there is a file, waits for the database
        for two seconds at most.
        """
        patience = None
        with contextlib.suppress(OSError, ValueError):
            said = json.loads(self._path.read_text())
            self._confirmed_at = float(said["confirmed_at"])
            self._take(from_json(said["book"]))
            self._read_at, patience = 0.0, OPEN_SECONDS
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(patience):
                await self.look()

    async def ask(self, question: Callable[[], _Answer]) -> _Answer:
        """Run a database query in a thread and return its result. Raises DatabaseUnavailable on an error or after ten
        seconds.
        """

        def in_thread() -> _Answer:
            close_old_connections()
            try:
                return question()
            finally:
                close_old_connections()

        try:
            async with asyncio.timeout(PATIENCE_SECONDS):
                answer = await asyncio.get_running_loop().run_in_executor(self._threads, in_thread)
        except (DatabaseError, InterfaceError, TimeoutError) as error:
            if not self._is_away:
                logger.warning("the database does not answer, endpoints are served from the table in memory: %s", error)
            self._is_away = True
            raise DatabaseUnavailable from error
        if self._is_away:
            logger.info("the database answers again")
        self._is_away = False
        return answer

    async def close(self) -> None:
        """Cancel the reads of the table and end the threads. Waits two seconds at most for a running query."""
        for look in self._looks:
            look.cancel()
        self._threads.shutdown(wait=False, cancel_futures=True)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(CLOSE_SECONDS):
                await asyncio.to_thread(self._threads.shutdown)

    async def look_anew(self) -> bool:
        """Read the endpoint table again now; return whether the database answered. Callers before the start of a read
        share it, and reads are 0.2 s apart. Returns False at once while the database is away, and after two seconds.
        """
        if self._is_away:
            return False
        if self._next is None:
            self._next = asyncio.create_task(self._look_soon())
            self._looks.add(self._next)
            self._next.add_done_callback(self._looks.discard)
        done, _ = await asyncio.wait({self._next}, timeout=OPEN_SECONDS)
        return any(one.result() for one in done if not one.cancelled())

    async def _look_soon(self) -> bool:
        async with self._turn:
            await asyncio.sleep(max(0.0, self._looked_at + AGAIN_SECONDS - time.monotonic()))
            self._looked_at, self._next = time.monotonic(), None  # callers from now on need a later read
            with contextlib.suppress(Exception):  # the read of every second logs the same error
                await self._look()
                return not self._is_away
        return False

    async def look(self) -> None:
        """Read the endpoint table if it has changed, and every 30 s in any case, as agents may have moved."""
        async with self._turn:
            await self._look()

    async def _look(self) -> None:
        with contextlib.suppress(DatabaseUnavailable):
            is_old = time.monotonic() - self._read_at >= WHOLE_SECONDS or not self._read_at
            if not is_old and await self.ask(read_sign) == self.table.sign:
                self._confirmed_at = time.time()
                return
            table = await self.ask(lambda: read_table(timezone.now()))
            self._confirmed_at = time.time()
            if table != self.table or is_old:
                self._save(table)
            self._take(table)

    def _take(self, table: EndpointTable) -> None:
        if table != self.table:
            self._on_change(table)  # first: a change that fails here is repeated by the next read
        self.table, self._read_at = table, time.monotonic()

    def _save(self, table: EndpointTable) -> None:
        """Write the endpoint table to the file atomically, with mode 0600. An error is only logged."""
        text = json.dumps({"confirmed_at": self._confirmed_at, "book": table.to_json()})
        draft = self._path.with_suffix(".draft")
        try:
            with os.fdopen(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
                file.write(text)
            draft.replace(self._path)
        except OSError as error:
            logger.warning("the endpoint table cannot be kept on disk: %s", error)
