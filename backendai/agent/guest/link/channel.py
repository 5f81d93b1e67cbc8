"""The interpreter's end of its socket to the guest: one JSON object per line in both directions."""

from __future__ import annotations

import json
import socket
import threading
from typing import Any

from backendai.agent.guest.home.items import LARGEST_MESSAGE, bounded, encoded, gap


class Channel:
    """Blocking; ``say`` is thread-safe."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._heard = b""
        self._saying = threading.Lock()

    def fileno(self) -> int:
        """Return the file descriptor, to wait for incoming orders."""
        return self._connection.fileno()

    def say(self, **message: Any) -> None:
        """Send a message; a gap replaces one that is too large. Does nothing if the guest has ended."""
        line = encoded(message)
        if len(line) > LARGEST_MESSAGE:
            line = encoded({"item": gap(len(line))})
        try:
            with self._saying:
                self._connection.sendall(line)
        except OSError:
            return

    def show(self, item: dict[str, Any]) -> None:
        """Send an item of output, split or cut to the limits."""
        for one in bounded(item):
            self.say(item=one)

    def hear(self) -> list[dict[str, Any]] | None:
        """Wait for orders and return all complete ones; None if the guest has ended."""
        while True:
            data = self._connection.recv(65536)
            if not data:
                return None
            self._heard += data
            *lines, self._heard = self._heard.split(b"\n")
            if lines:
                return [json.loads(line) for line in lines]
