"""The HTTP protocol of the web server, with limits that uvicorn lacks.

They are time and size of a head, and speed of a body and of a reader. uvicorn loads the class by its name (``--http``).
"""

from __future__ import annotations

import asyncio
import logging
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from backendai.base.core.errors import PlatformError

HEAD_SECONDS = 10.0
LARGEST_HEAD = 64 * 1024
BODY_SECONDS = 30.0  # for LEAST_BODY
LEAST_BODY = 16 * 1024
READER_SECONDS = 30.0  # for LEAST_READ
LEAST_READ = 16 * 1024
_TOO_LARGE = b"HTTP/1.1 431 Request Header Fields Too Large\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"


class _OneLine(logging.Filter):
    """Makes one warning of the traceback of an answer that broke off, as the programs of a session can cause many."""

    def filter(self, record: logging.LogRecord) -> bool:
        """Change the record of a PlatformError; return that it is to be logged."""
        error = record.exc_info[1] if record.exc_info else None
        if isinstance(error, PlatformError):
            record.levelno, record.levelname = logging.WARNING, "WARNING"
            record.msg, record.args, record.exc_info = "an answer broke off: %r", (str(error),), None
        return True


logging.getLogger("uvicorn.error").addFilter(_OneLine())


class HttpWithTimeouts(HttpToolsProtocol):
    """Closes connections whose head is incomplete after some time or too large, and those whose body or reader is
    too slow."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Start the timer of the first head."""
        self._timer: asyncio.TimerHandle | None = None
        self._reader_timer: asyncio.TimerHandle | None = None
        self._reads_head, self._reads_body = False, False
        self._head_bytes = self._body_bytes = self._looked_at = 0
        super().connection_made(transport)
        self._begin_head()

    def connection_lost(self, exc: Exception | None) -> None:
        """Cancel the timers."""
        self._end_wait()
        self._end_reader_wait()
        super().connection_lost(exc)

    def pause_writing(self) -> None:
        """Start the timer of the reader, who has left much unread."""
        super().pause_writing()
        self._wait_for_reader()

    def resume_writing(self) -> None:
        """Cancel the timer of the reader."""
        self._end_reader_wait()
        super().resume_writing()

    def data_received(self, data: bytes) -> None:
        """Parse the data, and count the bytes of the head.

        Bytes between two requests start a head, also blank lines, which the parser skips.
        """
        if not self._reads_head and not self._reads_body:
            self._begin_head()
        self._head_bytes += len(data)
        super().data_received(data)
        if self._reads_head and self._head_bytes > LARGEST_HEAD and not self.transport.is_closing():
            self.transport.write(_TOO_LARGE)
            self.transport.close()

    def on_message_begin(self) -> None:
        """Start a head, which can be in the middle of the received data."""
        if not self._reads_head:
            self._begin_head()
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        """End the head, and start the timer of the body."""
        self._end_wait()
        self._reads_head, self._reads_body = False, True
        self._body_bytes = self._looked_at = 0
        super().on_headers_complete()
        self._timer = self.loop.call_later(BODY_SECONDS, self._look_at_body)

    def on_body(self, body: bytes) -> None:
        """Count the bytes of the body."""
        self._body_bytes += len(body)
        super().on_body(body)

    def on_message_complete(self) -> None:
        """Cancel the timer at the end of the request."""
        self._end_wait()
        self._reads_head = self._reads_body = False
        super().on_message_complete()

    def handle_websocket_upgrade(self) -> None:
        """Pass the connection to the websocket protocol."""
        self._end_wait()
        super().handle_websocket_upgrade()

    def _begin_head(self) -> None:
        self._end_wait()
        self._reads_head, self._head_bytes = True, 0
        self._timer = self.loop.call_later(HEAD_SECONDS, self._close)

    def _look_at_body(self) -> None:
        """Close the connection if too few bytes of the body came, unless the application has paused reading."""
        if self._body_bytes - self._looked_at < LEAST_BODY and not self.flow.read_paused:
            self._close()
            return
        self._looked_at = self._body_bytes
        self._timer = self.loop.call_later(BODY_SECONDS, self._look_at_body)

    def _wait_for_reader(self) -> None:
        self._unread = self.transport.get_write_buffer_size()
        self._reader_timer = self.loop.call_later(READER_SECONDS, self._look_at_reader)

    def _look_at_reader(self) -> None:
        """Close the connection if its reader took too few bytes."""
        if self._unread - self.transport.get_write_buffer_size() < LEAST_READ:
            self._close()
        else:
            self._wait_for_reader()

    def _end_reader_wait(self) -> None:
        if self._reader_timer is not None:
            self._reader_timer.cancel()
        self._reader_timer = None

    def _close(self) -> None:
        self._timer = None
        if not self.transport.is_closing():
            self.transport.abort()

    def _end_wait(self) -> None:
        timer: Any = self._timer
        if timer is not None:
            timer.cancel()
        self._timer = None
