"""Connects a websocket with a terminal. A window limits unacknowledged bytes, as browsers' websockets have no
backpressure."""

from __future__ import annotations

import asyncio
import contextlib
import json
from dataclasses import dataclass
from typing import Any, Literal

from aiohttp import WSMsgType, web

from backendai.agent.backends.base import BackendError, Terminal

WINDOW_BYTES = 256 * 1024
WIDEST_WINDOW_BYTES = 1024 * 1024
_WORTH_SECONDS = 0.1
SHELL_ENDED = 4000
_LARGEST_SIDE = 1000
_LONGEST_SOUGHT = 1000
_FINDS = ("find", "previous", "next", "end")


@dataclass(frozen=True, slots=True)
class Resize:
    """The client's screen has changed its size."""

    rows: int
    cols: int


@dataclass(frozen=True, slots=True)
class Acknowledge:
    """The client has displayed ``count`` more bytes."""

    count: int


@dataclass(frozen=True, slots=True)
class Find:
    """The client searches the terminal's output for a text."""

    does: Literal["find", "previous", "next", "end"]
    text: str


class FlowWindow:
    """Counts bytes that were sent and not yet acknowledged; ``size`` None: no limit.

    A wide window keeps a fast connection full; on a slow one the echo of a key would wait behind all bytes in it. So
    its width is the number of bytes that the client lately acknowledged in 0.1 s, at least ``size`` and at most
    ``widest``.
    """

    def __init__(self, size: int | None, widest: int = WIDEST_WINDOW_BYTES) -> None:
        self._size, self._widest, self._open = size, widest, 0
        self._narrowest, self._counted, self._since = size or 0, 0, 0.0
        self._moved = asyncio.Event()

    async def wait_for_room(self) -> None:
        """Wait until the number of unacknowledged bytes is below the window's width."""
        while self._size is not None and self._open >= self._size:
            self._moved.clear()
            await self._moved.wait()

    def sent(self, count: int) -> None:
        """Count sent bytes."""
        self._open += count

    def acknowledged(self, count: int, now: float) -> None:
        """Count bytes acknowledged by ``now`` (monotonic seconds). A number larger than the sent bytes counts as
        all."""
        count = min(count, self._open)
        self._open -= count
        self._counted += count
        if self._size is not None and now - self._since >= _WORTH_SECONDS:
            worth = int(self._counted * _WORTH_SECONDS / (now - self._since))
            self._size = max(self._narrowest, min(worth, self._widest))
            self._counted, self._since = 0, now
        self._moved.set()


def read_control(text: str) -> Resize | Acknowledge | Find | None:
    """Return the message of a text frame; None if it is malformed or of an unknown type."""
    try:
        said: Any = json.loads(text)
        if said["type"] == "resize":
            return Resize(screen_side(said["rows"]), screen_side(said["cols"]))
        if said["type"] == "ack":
            return Acknowledge(max(0, int(said["bytes"])))
        if said["type"] == "find" and said["does"] in _FINDS:
            return Find(said["does"], "".join(filter(str.isprintable, str(said.get("text", ""))[:_LONGEST_SOUGHT])))
    except (ValueError, TypeError, KeyError):
        return None
    return None


def screen_side(value: object) -> int:
    """Return a number of rows or columns between 1 and 1,000. Raises ValueError if the value is not a number."""
    return min(max(int(str(value)), 1), _LARGEST_SIDE)


async def relay(websocket: web.WebSocketResponse, terminal: Terminal, window: FlowWindow) -> bool:
    """Copy bytes until one side ends, then close the terminal; returns whether the shell ended.

    Raises the terminal's exceptions.
    """
    output = asyncio.create_task(_pass_output(websocket, terminal, window))
    keys = asyncio.create_task(_pass_input(websocket, terminal, window))
    try:
        await asyncio.wait((output, keys), return_when=asyncio.FIRST_COMPLETED)
        return output.done() and output.result()
    finally:
        for task in (output, keys):
            task.cancel()
        await asyncio.gather(output, keys, return_exceptions=True)
        await terminal.close()


async def _pass_output(websocket: web.WebSocketResponse, terminal: Terminal, window: FlowWindow) -> bool:
    while True:
        await window.wait_for_room()
        data = await terminal.read()
        if not data:
            return True
        window.sent(len(data))
        try:
            await websocket.send_bytes(data)
        except (ConnectionError, RuntimeError):  # the client disconnected
            return False


async def _pass_input(websocket: web.WebSocketResponse, terminal: Terminal, window: FlowWindow) -> None:
    async for frame in websocket:
        if frame.type is WSMsgType.BINARY:
            await terminal.write(frame.data)
        elif frame.type is WSMsgType.TEXT:
            said = read_control(frame.data)
            if isinstance(said, Resize):
                await terminal.resize(said.rows, said.cols)
            elif isinstance(said, Acknowledge):
                window.acknowledged(said.count, asyncio.get_running_loop().time())
            elif isinstance(said, Find):
                with contextlib.suppress(BackendError):  # a failed search must not close the terminal
                    await terminal.find(said.does, said.text)
