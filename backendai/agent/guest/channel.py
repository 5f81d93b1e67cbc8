"""The interpreter's end of the socket between it and the guest: one JSON object per line, both ways."""

from __future__ import annotations

import json
import socket
import threading
from typing import Any

from backendai.agent.guest.items import LARGEST_MESSAGE, bounded, encoded, gap


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
        """Send a message, a gap in place of one that is too large; a guest that is gone hears nothing."""
        line = encoded(message)
        if len(line) > LARGEST_MESSAGE:
            line = encoded({"item": gap(len(line))})
        try:
            with self._saying:
                self._connection.sendall(line)
        except OSError:
            return

    def show(self, item: dict[str, Any]) -> None:
        """Send an item of output within its limits."""
        for one in bounded(item):
            self.say(item=one)

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
