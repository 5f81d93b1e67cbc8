"""Reads the output of main processes: the end of a log, or a growing log."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from uuid import UUID

from docker.errors import NotFound

from backendai.agent.backends.docker_engine import Engine, container_name
from backendai.agent.backends.docker_stream import open_stream

_USUAL_LINE = 40
_LONGEST_LINE = 16384  # the engine splits longer lines


class Logs:
    """Reads the logs of the containers of one agent."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def read(self, kernel_id: UUID, limit: int) -> tuple[bytes, bool]:
        """Return the last ``limit`` bytes, and whether the log is longer."""
        with self._engine.asking() as client:
            if self._engine.find(kernel_id) is None:
                return b"", False
            try:
                # The engine counts lines, not bytes: request an estimated number of lines, and if these have too few
                # bytes, the largest possible number.
                for lines in (limit // _USUAL_LINE + 1, limit + 1):
                    output: bytes = client.logs(container_name(kernel_id), tail=lines)
                    if len(output) > limit or output.count(b"\n") + len(output) // _LONGEST_LINE + 1 < lines:
                        break
            except NotFound:
                return b"", False
        return output[max(len(output) - limit, 0) :], len(output) > limit

    async def follow(self, kernel_id: UUID, *, tail: int | None, follow: bool) -> AsyncIterator[bytes]:
        """Yield the log from ``tail`` lines before its end (None: all); ``follow`` continues as it grows."""
        if await asyncio.to_thread(self._is_gone, kernel_id):
            return
        path = (
            f"/v{self._engine.api_version}/containers/{container_name(kernel_id)}/logs"
            f"?stdout=1&stderr=1&follow={int(follow)}&tail={'all' if tail is None else tail}"
        )
        stream = await open_stream(self._engine.url, "GET", path)
        try:
            async for piece in stream.frames():
                yield piece
        finally:
            await stream.close()

    def _is_gone(self, kernel_id: UUID) -> bool:
        with self._engine.asking():
            return self._engine.find(kernel_id) is None
