"""Reading the log of a native kernel, which lies in ``output.log`` after an older half in ``output.log.1``."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Callable
from pathlib import Path

_PIECE = 64 * 1024
_INTERVAL = 0.2


def read_tail(log: Path, limit: int) -> tuple[bytes, bool]:
    """Return the last ``limit`` bytes and whether there was more; b"" when there is no log."""
    data = b"".join(_content(path) for path in (log.with_name(log.name + ".1"), log))
    cut = len(data) > limit or log.with_name("output.cut").exists()
    return data[max(len(data) - limit, 0) :], cut


async def follow(log: Path, *, tail: int | None, follow: bool, ended: Callable[[], bool]) -> AsyncIterator[bytes]:
    """Yield the last ``tail`` lines (None: all that is kept), then what is added until ``ended`` says it is over."""
    reader = await asyncio.to_thread(_Reader, log)
    try:
        if begin := await asyncio.to_thread(reader.begin, tail):
            yield begin
        while follow:
            over = await asyncio.to_thread(ended)  # asked before reading: what is read afterwards is complete
            while piece := await asyncio.to_thread(reader.read):
                yield piece
            if over:
                return
            await asyncio.sleep(_INTERVAL)
    finally:
        reader.close()


class _Reader:
    """Goes through the log's newest file and on to its successor when the file was rotated away."""

    def __init__(self, log: Path) -> None:
        self.log = log
        self.file = os.open(log, os.O_RDONLY)

    def begin(self, tail: int | None) -> bytes:
        data = _content(self.log.with_name(self.log.name + ".1"))
        while piece := os.read(self.file, _PIECE):
            data += piece
        return data if tail is None else _last_lines(data, tail)

    def read(self) -> bytes:
        if piece := os.read(self.file, _PIECE):
            return piece
        try:
            newest = os.open(self.log, os.O_RDONLY)
        except FileNotFoundError:  # between two files, or removed
            return b""
        if os.path.sameopenfile(newest, self.file):
            os.close(newest)
            return b""
        piece = os.read(self.file, _PIECE)  # written before the rotation, after our last look
        if piece:
            os.close(newest)
            return piece
        os.close(self.file)
        self.file = newest
        return os.read(self.file, _PIECE)

    def close(self) -> None:
        os.close(self.file)


def _last_lines(data: bytes, count: int) -> bytes:
    return b"".join(data.splitlines(keepends=True)[-count:]) if count > 0 else b""


def _content(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return b""
