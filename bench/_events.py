"""Websockets for measuring: no thread between the socket and the clock."""

from __future__ import annotations

import contextlib
import json
import select
import socket
import threading
import time
from collections.abc import Iterator

from websockets.client import ClientProtocol
from websockets.datastructures import Headers
from websockets.frames import Frame, Opcode
from websockets.http11 import Response
from websockets.typing import Subprotocol
from websockets.uri import parse_uri

_PIECE = 256 * 1024


class Socket:
    """A blocking websocket with a bearer token."""

    def __init__(self, port: int, path: str, token: str, *, timeout: float = 30.0, speaking: str = "") -> None:
        uri = parse_uri(f"ws://127.0.0.1:{port}{path}")
        self._protocol = ClientProtocol(uri, max_size=None, subprotocols=[Subprotocol(speaking)] if speaking else None)
        self._socket = socket.create_connection(("127.0.0.1", port), timeout=timeout)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        request = self._protocol.connect()
        request.headers.update(Headers({"Authorization": f"Bearer {token}"}))
        self._protocol.send_request(request)
        self._flush()
        self._ready: list[Frame] = []
        answer = next(event for event in self._received() if isinstance(event, Response))
        if answer.status_code != 101:
            raise ConnectionError(f"{path} was answered with {answer.status_code}")

    def send(self, data: bytes | str) -> None:
        """Send one frame."""
        if isinstance(data, str):
            self._protocol.send_text(data.encode())
        else:
            self._protocol.send_binary(data)
        self._flush()

    def receive(self) -> Frame:
        """Return the next text or binary frame; raises ConnectionError when the other side closes."""
        while not self._ready:
            for event in self._received():
                self._take(event)
        return self._ready.pop(0)

    def has_frame(self, seconds: float) -> bool:
        """Return whether a text or binary frame comes before that long a silence; pings are answered meanwhile."""
        while not self._ready and select.select([self._socket], [], [], seconds)[0]:
            for event in self._received():
                self._take(event)
        return bool(self._ready)

    def close(self) -> None:
        """Hang up."""
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()

    def _take(self, event: object) -> None:
        if not isinstance(event, Frame):
            return
        if event.opcode is Opcode.CLOSE:
            raise ConnectionError(f"the websocket was closed: {event.data!r}")
        if event.opcode in (Opcode.TEXT, Opcode.BINARY):
            self._ready.append(event)

    def _received(self) -> Iterator[object]:
        while True:
            data = self._socket.recv(_PIECE)
            if not data:
                raise ConnectionError("the websocket was closed")
            self._protocol.receive_data(data)
            self._flush()
            events = self._protocol.events_received()
            if events:
                yield from events
                return

    def _flush(self) -> None:
        for data in self._protocol.data_to_send():
            if data:
                self._socket.sendall(data)


class Events:
    """Listens to ``/ws/events/`` and keeps when each status of each session was heard of."""

    def __init__(self, port: int, token: str) -> None:
        self._socket = Socket(port, "/ws/events/", token, timeout=600.0)
        self._heard: dict[tuple[str, str], float] = {}
        self._more = threading.Condition()
        threading.Thread(target=self._listen, daemon=True).start()

    def time_of(self, session_id: str, status: str, timeout: float = 120.0) -> float:
        """Return when the session was heard to be in this status (perf_counter); raises TimeoutError."""
        key = (session_id, status)
        with self._more:
            if not self._more.wait_for(lambda: key in self._heard, timeout):
                statuses = [kept for kept in self._heard if kept[0] == session_id]
                raise TimeoutError(f"session {session_id} did not become {status}; heard: {statuses}")
            return self._heard[key]

    def close(self) -> None:
        """Stop listening."""
        self._socket.close()

    def _listen(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                frame = self._socket.receive()
                heard_at, said = time.perf_counter(), json.loads(frame.data)
                if said["type"] == "session":
                    with self._more:
                        self._heard.setdefault((said["id"], said["status"]), heard_at)
                        self._more.notify_all()
