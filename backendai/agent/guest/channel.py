"""The interpreter's end of the socket between it and the guest: one JSON object per line, both ways."""

from __future__ import annotations

import json
import socket
import threading
from typing import Any


class Channel:
    """Blocking; ``say`` may be called from any thread."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._heard = b""
        self._saying = threading.Lock()

    def fileno(self) -> int:
        """Return the file descriptor, to wait for what comes."""
        return self._connection.fileno()

    def say(self, **message: Any) -> None:
        """Send a message; a guest that is gone hears nothing."""
        line = json.dumps(message).encode() + b"\n"
        try:
            with self._saying:
                self._connection.sendall(line)
        except OSError:
            return

    def hear(self) -> list[dict[str, Any]] | None:
        """Wait for orders and return those that are whole; None when the guest is gone."""
        while True:
            data = self._connection.recv(65536)
            if not data:
                return None
            self._heard += data
            *lines, self._heard = self._heard.split(b"\n")
            if lines:
                return [json.loads(line) for line in lines]
