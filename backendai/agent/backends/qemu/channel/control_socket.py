"""The socket of a virtual machine's supervisor, on which it answers agents.

A question is one line of JSON. ``open`` (a letter of ``init/streams.c``) with ``words`` is answered by a line with
a number, and turns the connection into a stream; ``resize``, ``ended``, ``cut`` and ``use`` are answered by one line.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import Awaitable, Callable
from typing import Any

from backendai.agent.backends.qemu.channel.frames import BadFrame
from backendai.agent.backends.qemu.channel.mux import Mux, MuxStream, StreamRefused

_LETTERS = "pxdtw"
_DETACHED = "d"
_MOST_ENDED = 256


class ControlSocket:
    """Answers agents. ``use`` returns the virtual machine's resource use; ``cut`` unmounts one of its folders."""

    def __init__(self, mux: Mux, use: Callable[[], dict[str, Any]], cut: Callable[[str], Awaitable[int]]) -> None:
        self._mux, self._use, self._cut = mux, use, cut
        self._codes: dict[int, int | None] = {}  # exit codes of ended programs
        self._waits: set[asyncio.Task[None]] = set()

    async def answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer one connection."""
        try:
            asked = json.loads(await reader.readline() or b"{}")
            if asked.get("open"):
                await self._open(asked, reader, writer)
                return
            writer.write(json.dumps(await self._told(asked)).encode() + b"\n")
            await writer.drain()
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            pass
        finally:
            with contextlib.suppress(OSError):
                writer.close()

    async def _told(self, asked: dict[str, Any]) -> dict[str, Any]:
        if "resize" in asked:
            self._mux.resize(int(asked["resize"]), int(asked["rows"]), int(asked["columns"]))
            return {}
        if "ended" in asked:
            number = int(asked["ended"])
            return {"running": self._mux.stream(number) is not None, "exit_code": self._codes.get(number)}
        if "cut" in asked:
            return {"killed": await self._cut(str(asked["cut"]))}
        return self._use()

    async def _open(self, asked: dict[str, Any], reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        letter, words = str(asked["open"]), [str(word) for word in asked["words"]]
        try:
            if letter not in _LETTERS:
                raise BadFrame(f"{letter!r} opens nothing")
            stream = await self._mux.open(letter, words)
        except StreamRefused as refusal:
            writer.write(json.dumps({"refused": refusal.code}).encode() + b"\n")
            return
        except (BadFrame, TimeoutError) as error:
            said = str(error) or "the virtual machine does not answer"
            writer.write(json.dumps({"error": said}).encode() + b"\n")
            return
        wait = asyncio.create_task(self._remember(stream))
        self._waits.add(wait)
        wait.add_done_callback(self._waits.discard)
        writer.write(json.dumps({"stream": stream.number}).encode() + b"\n")
        if letter != _DETACHED:
            await self._mux.join(stream, (reader, writer))

    async def _remember(self, stream: MuxStream) -> None:
        await stream.ended.wait()
        self._codes[stream.number] = stream.code
        for oldest in list(self._codes)[:-_MOST_ENDED]:
            del self._codes[oldest]
