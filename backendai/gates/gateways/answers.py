"""An answer of a server in a kernel, parsed by llhttp as it arrives.

Each answer has a parser of its own: nothing of it, such as trailers, can become a part of the next one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import aiohttp
from httptools import HttpParserError, HttpParserUpgrade, HttpResponseParser
from multidict import CIMultiDict

from backendai.base.core.messages import Message

LARGEST_HEADER, LARGEST_HEAD, MOST_HEADERS = 32 * 1024, 256 * 1024, 128
_BODILESS = frozenset({204, 304})


class InvalidAnswer(aiohttp.ClientError):
    """An answer came and cannot be passed on. ``fault``: what is wrong with its head."""

    def __init__(self, fault: str) -> None:
        super().__init__(fault)
        self.fault = fault


class Answer:
    """The answer to one request. ``arrived`` is done with its head, or has the error. ``sink`` gets the body's pieces;
    before it is set, they are kept in ``early``. ``is_whole`` is true at the end.
    """

    def __init__(self, method: str) -> None:
        self.status, self.reason, self.headers = 0, "", CIMultiDict[str]()
        self.arrived: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.sink: Callable[[bytes], None] | None = None
        self.early = bytearray()
        self.beyond = b""  # what follows the head of an answer that switches protocols
        self.is_reusable = self.has_begun = self.is_whole = False
        self._has_body = method != "HEAD"
        self._reason, self._size = b"", 0
        self._fault: InvalidAnswer | None = None
        self._error: Exception | None = None
        self._waiter: asyncio.Future[None] | None = None
        self._parser = HttpResponseParser(self)
        # Strange heads of programs that browsers read pass, as they always have.
        self._parser.set_dangerous_leniencies(
            lenient_headers=True, lenient_optional_cr_before_lf=True, lenient_spaces_after_chunk_size=True
        )

    @property
    def is_bodiless(self) -> bool:
        """Return whether an answer with this status, or to this method, has no body whatever its head says."""
        return not self._has_body or self.status in _BODILESS or self.status < 200

    def feed(self, data: bytes) -> None:
        """Parse what has arrived."""
        self.has_begun = True
        self._size += len(data)
        try:
            self._parser.feed_data(data)
        except HttpParserUpgrade as switch:
            self.beyond = data[switch.args[0] :]
        except HttpParserError as error:
            self.is_reusable = False  # bytes behind the end, of an answer that has ended, harm only their connection
            reason = str(error)[:100] or "no reason given"
            self.fail(self._fault or InvalidAnswer(Message("its answer is not valid HTTP ({reason})", reason=reason)))
        if self._size > LARGEST_HEAD:  # also of trailers, and of what is beside the pieces of a body
            most = LARGEST_HEAD // 1024
            self.fail(InvalidAnswer(Message("the head of its answer is longer than {kilobytes} KiB", kilobytes=most)))

    def end(self, error: Exception | None) -> None:
        """Take the end of the connection. It ends a body that says no length."""
        framed = "Content-Length" in self.headers or "Transfer-Encoding" in self.headers
        if error is None and self.arrived.done() and not framed:
            self._finish()
        self.fail(error or aiohttp.ServerDisconnectedError())

    def fail(self, error: Exception) -> None:
        """End the answer with an error, unless it has ended."""
        if self.is_whole or self._error is not None:
            return
        self._error = error
        for future in (self.arrived, self._waiter):
            if future is not None and not future.done():
                future.set_exception(error)
                future.exception()  # the event loop logs errors that nobody has read, and the asker may have left

    async def wait_for_end(self) -> None:
        """Return at the end of the answer. Raises its error."""
        if self._error is not None:
            raise self._error
        if not self.is_whole:
            self._waiter = asyncio.get_running_loop().create_future()
            await self._waiter

    def on_message_begin(self) -> None:
        """Note an answer that nobody asked for."""
        if self.is_whole:
            self.is_reusable = False
            raise self._wrong(Message("an answer came that nobody asked for"))

    def on_status(self, reason: bytes) -> None:
        self._reason += reason

    def on_header(self, name: bytes, value: bytes) -> None:
        if len(name) + len(value) > LARGEST_HEADER:
            most = LARGEST_HEADER // 1024
            raise self._wrong(Message("a header of its answer is longer than {kilobytes} KiB", kilobytes=most))
        if len(self.headers) >= MOST_HEADERS:
            raise self._wrong(Message("its answer has more than {most} headers", most=MOST_HEADERS))
        if b"\0" in value:
            raise self._wrong(Message("its answer is not valid HTTP ({reason})", reason="a NUL in a header"))
        if not self.arrived.done():  # else a trailer
            text = value.rstrip(b" \t").decode(errors="surrogateescape")
            self.headers.add(name.decode(errors="surrogateescape"), text)

    def on_headers_complete(self) -> None:
        self.status = self._parser.get_status_code()
        if self.status == 101 and not self._parser.should_upgrade():
            raise self._wrong(Message("it switches to another protocol without its name"))
        if self.status >= 200 or self.status == 101:
            self.reason = self._reason.decode(errors="surrogateescape")
            if not self.arrived.done():  # else the asker has left
                self.arrived.set_result(None)
        if not self._has_body and self.status >= 200:  # llhttp expects a body here, so the connection is not kept
            self._finish()

    def on_body(self, data: bytes) -> None:
        if self.is_bodiless:
            raise self._wrong(Message("a body came where none may be"))
        self._size = 0
        if self.sink is not None:
            self.sink(data)
        else:
            self.early += data

    def on_message_complete(self) -> None:
        if self.status < 200 and self.status != 101:  # an interim answer: what follows is another head
            self._reason = b""
            self.headers.clear()
        elif not self.is_whole:
            self.is_reusable = self.status >= 200 and self._parser.should_keep_alive()
            self._finish()

    def _finish(self) -> None:
        self.is_whole = True
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def _wrong(self, fault: str) -> InvalidAnswer:
        self._fault = InvalidAnswer(fault)
        return self._fault
