"""Reads the files of a form in sequence, while the form is still arriving."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, AsyncIterator

from aiohttp import BodyPartReader, MultipartReader, StreamReader
from aiohttp.base_protocol import BaseProtocol
from aiohttp.http_exceptions import HttpProcessingError

from backendai.base.core.errors import UserError

_BUFFERED = 2**16
_PIECE = 64 * 1024
_UNREADABLE = "The form cannot be read: send multipart/form-data with files that have names."


class _Valve(BaseProtocol):
    """Pauses the sender while received bytes are unread. It stands in for the protocol of a stream."""

    def __init__(self) -> None:
        super().__init__(asyncio.get_running_loop())
        self.is_open = asyncio.Event()
        self.is_open.set()

    @property
    def connected(self) -> bool:
        """Return True, as the stream asks whether more bytes may come."""
        return True

    def pause_reading(self) -> None:
        """Pause the sender."""
        self._reading_paused = True
        self.is_open.clear()

    def resume_reading(self, resume_parser: bool = True) -> None:
        """Let the sender continue."""
        self._reading_paused = False
        self.is_open.set()


async def files_in(content_type: str, body: AsyncIterator[bytes]) -> AsyncGenerator[tuple[str, AsyncIterator[bytes]]]:
    """Yield name and content of each file of the form; read each content before the next.

    Raises UserError for an invalid form.
    """
    if not content_type.lower().startswith("multipart/form-data"):
        raise UserError(_UNREADABLE, code="bad-form")
    valve = _Valve()
    stream = StreamReader(valve, _BUFFERED, loop=asyncio.get_running_loop())
    feeding = asyncio.create_task(_feed(stream, valve, body))
    try:
        reader = MultipartReader({"Content-Type": content_type}, stream)
        while (part := await reader.next()) is not None:
            if not isinstance(part, BodyPartReader):
                raise UserError(_UNREADABLE, code="bad-form")
            if part.filename:
                yield part.filename, _content(part)
    except (ValueError, KeyError, RuntimeError, HttpProcessingError) as error:
        raise UserError(_UNREADABLE, code="bad-form") from error
    finally:
        feeding.cancel()
        with contextlib.suppress(asyncio.CancelledError, OSError):
            await feeding


async def _feed(stream: StreamReader, valve: _Valve, body: AsyncIterator[bytes]) -> None:
    try:
        async for piece in body:
            stream.feed_data(piece)
            await valve.is_open.wait()
        stream.feed_eof()
    except OSError as error:
        stream.set_exception(error)


async def _content(part: BodyPartReader) -> AsyncIterator[bytes]:
    while piece := await part.read_chunk(_PIECE):
        yield piece
