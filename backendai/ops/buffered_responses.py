"""Runs WSGI under ASGI with one change of threads for each short answer.

The library changes to the event loop for each part of it: headers, every 4 KB of a file, end. That was a third of a
short request's processor time.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from asgiref.wsgi import WsgiToAsgi, WsgiToAsgiInstance

_MOST_HELD = 2**18  # the server's buffer of a connection holds it when the browser is slow
Message = dict[str, Any]


class BufferedResponses(WsgiToAsgi):
    """An ASGI application that wraps a WSGI one.

    A short answer with a known length is sent whole; other answers are sent in parts.
    """

    async def __call__(self, scope: Any, receive: Any, send: Callable[[Message], Awaitable[None]]) -> None:
        """Serve one request."""
        answer = _Answer(self.wsgi_application, self.duplicate_header_limit)
        await answer(scope, receive, send)
        if answer.held:
            start, *parts = answer.held
            await send(start)
            await send({"type": "http.response.body", "body": b"".join(part.get("body", b"") for part in parts)})


class _Answer(WsgiToAsgiInstance):
    """One answer. ``held``: the messages of a short one."""

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self.held: list[Message] = []

    @property  # type: ignore[override]  # the library sets it and calls it, nothing else
    def sync_send(self) -> Callable[[Message], None]:
        """Return the function that receives each message."""
        return self._take

    @sync_send.setter
    def sync_send(self, send_now: Callable[[Message], None]) -> None:
        self._send_now = send_now

    def _take(self, message: Message) -> None:
        length = self.response_content_length
        if length is None or length > _MOST_HELD:
            self._send_now(message)
        else:
            self.held.append(message)
