"""Reads the output of main processes: the end of a log, or a growing log."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from typing import Any
from uuid import UUID

from backendai.agent.backends.base import BackendError
from backendai.agent.backends.docker.create import LOG_DRIVER
from backendai.agent.backends.docker.engine import CALL_SECONDS, UNREACHABLE, Engine
from backendai.agent.backends.docker.stream import open_stream
from backendai.base.core.log_lines import from_last_lines

_USUAL_LINE = 40
_RECORD = 16384  # the engine splits longer lines


class DockerLogs:
    """Reads the logs of the containers of one agent."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def read(self, kernel_id: UUID, limit: int) -> tuple[bytes, bool]:
        """Return the last ``limit`` bytes, and whether the log is longer."""
        found = self._find(kernel_id)
        if found is None:
            return b"", False
        try:
            return asyncio.run(self._end_of(found, limit))
        except BackendError:
            if self._find(kernel_id) is None:
                return b"", False
            raise
        except TimeoutError as error:
            text = "The container engine does not answer: {error}"
            raise BackendError(text, error="a log took too long", code=UNREACHABLE) from error

    async def follow(self, kernel_id: UUID, *, tail: int | None, follow: bool) -> AsyncIterator[bytes]:
        """Yield the log from ``tail`` lines before its end (None: all); ``follow`` continues as it grows."""
        found = await asyncio.to_thread(self._find, kernel_id)
        if found is None:
            return

        def read(records: int | None, follow: bool) -> AsyncGenerator[bytes]:
            return self._records(found, records, follow)

        pieces = read(None, follow) if tail is None else from_last_lines(read, tail, follow=follow)
        async for piece in pieces:
            yield piece

    async def _end_of(self, container: dict[str, Any], limit: int) -> tuple[bytes, bool]:
        # The engine counts records, not bytes: request an estimated number, and if these have too few bytes, the
        # largest possible number.
        for records in (limit // _USUAL_LINE + 1, limit + 1):
            end, length, lines = bytearray(), 0, 0
            async with asyncio.timeout(CALL_SECONDS):
                async for piece in self._records(container, records, follow=False):
                    end += piece
                    length, lines = length + len(piece), lines + piece.count(b"\n")
                    if len(end) > 2 * limit:
                        del end[:-limit]
            if length > limit or lines + length // _RECORD + 1 < records:
                break
        return bytes(end[max(len(end) - limit, 0) :]), length > limit

    async def _records(self, container: dict[str, Any], number: int | None, follow: bool) -> AsyncGenerator[bytes]:
        path = (
            f"/v{self._engine.api_version}/containers/{container['Id']}/logs"
            f"?stdout=1&stderr=1&follow={int(follow)}&tail={'all' if number is None else number}"
        )
        # Docker 20.10 omits the newline of a line that the driver stored in several records. Earlier containers have
        # another driver, which adds it, but changes the size of records.
        is_ours = container["HostConfig"]["LogConfig"]["Type"] == LOG_DRIVER
        stream = await open_stream(self._engine.url, "GET", path)
        try:
            async for piece in stream.frames(whole=_RECORD if is_ours else 0):
                yield piece
        finally:
            await stream.close()

    def _find(self, kernel_id: UUID) -> dict[str, Any] | None:
        with self._engine.asking():
            return self._engine.find(kernel_id)
