"""Websockets of the portal, opened again when they break off."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

from bai.sdk.call import PASSING, Problem, Unreachable
from bai.sdk.client import Client

if TYPE_CHECKING:
    from websockets.sync.client import ClientConnection

_PASSING = (None, 1001, 1006, 1011, 1012, 1013)  # close codes after which one tries again
_LARGEST = 64 * 2**20
_WAITS = (0.0, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0)


class Closed(Exception):
    """The portal closed a socket. ``code``: docs/rest.md has a table of them."""

    def __init__(self, code: int | None, reason: str) -> None:
        self.code, self.reason = code, reason
        super().__init__(reason or f"The connection was closed ({code}).")

    @property
    def is_passing(self) -> bool:
        """Whether another try can help."""
        return self.code in _PASSING


@contextmanager
def opened(portal: Client, path: str) -> Iterator[ClientConnection]:
    """Open a socket. Raises Problem, Unreachable, and inside of it Closed."""
    from websockets.exceptions import ConnectionClosed, InvalidHandshake  # noqa: PLC0415  (no other command needs it)
    from websockets.sync.client import connect  # noqa: PLC0415

    headers, address = portal.headers | portal.authorization, portal.url.replace("http", "ws", 1) + path
    agent = headers.pop("User-Agent")
    try:
        socket = connect(
            address,
            additional_headers=headers,
            user_agent_header=agent,
            ssl=portal.context(),
            compression=None,
            max_size=_LARGEST,
            proxy=None if "://127.0.0.1" in portal.url or "://localhost" in portal.url else True,
        )
    except (OSError, InvalidHandshake) as error:
        status = error.response.status_code if hasattr(error, "response") else PASSING[0]
        if status not in PASSING:
            raise Problem(status, {"code": "not-allowed", "detail": "The portal refused the connection."}) from error
        raise Unreachable(f"{portal.url} does not answer: {error}") from error
    try:
        with socket:
            yield socket
    except ConnectionClosed as error:
        raise Closed(error.rcvd.code if error.rcvd else None, error.rcvd.reason if error.rcvd else "") from error


class Reconnecting:
    """Counts the tries to reach the portal; what arrives begins the count anew."""

    def __init__(self) -> None:
        self._failures = 0

    def succeeded(self) -> None:
        """Something arrived."""
        self._failures = 0

    def failed(self, error: Closed | Unreachable) -> None:
        """Wait before the next try. Raises Unreachable after many, and at once what does not pass."""
        self._failures += 1
        if isinstance(error, Closed) and not error.is_passing:
            raise Problem(409, {"code": "closed", "detail": str(error)}) from error
        if self._failures >= len(_WAITS):
            raise Unreachable(str(error)) from error
        time.sleep(_WAITS[self._failures])


def messages(socket: ClientConnection) -> Iterator[dict[str, Any]]:
    """Yield the JSON messages until the socket is closed."""
    while True:
        with suppress(ValueError):
            yield json.loads(socket.recv())
