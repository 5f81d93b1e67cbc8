"""Reads a native kernel's log: ``output.log``, and before it the older half ``output.log.1``."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Callable
from pathlib import Path

from backendai.base.core.log_lines import last_lines

_PIECE = 64 * 1024
_INTERVAL = 0.2


def read_tail(log: Path, limit: int) -> tuple[bytes, bool]:
    """Return the last ``limit`` bytes, and whether the log is longer; b"" without a log."""
    data = b"".join(_content(path) for path in (log.with_name(log.name + ".1"), log))
    cut = len(data) > limit or log.with_name("output.cut").exists()
    return data[max(len(data) - limit, 0) :], cut


async def follow(log: Path, *, tail: int | None, follow: bool, ended: Callable[[], bool]) -> AsyncIterator[bytes]:
    """Yield the last ``tail`` lines (None: all), then new output until ``ended`` returns True."""
    reader = await asyncio.to_thread(_Reader, log)
    try:
        if begin := await asyncio.to_thread(reader.begin, tail):
            yield begin
        while follow:
            over = await asyncio.to_thread(ended)  # before reading, so that the following read is complete
            while piece := await asyncio.to_thread(reader.read):
                yield piece
            if over:
                return
            await asyncio.sleep(_INTERVAL)
    finally:
        reader.close()


class _Reader:
    """Reads the log's newest file, and continues with its successor after a rotation."""

    def __init__(self, log: Path) -> None:
        self.log = log
        self.file = os.open(log, os.O_RDONLY)

    def begin(self, tail: int | None) -> bytes:
        data = _content(self.log.with_name(self.log.name + ".1"))
        while piece := os.read(self.file, _PIECE):
            data += piece
        return data if tail is None else last_lines(data, tail)

    def read(self) -> bytes:
        if piece := os.read(self.file, _PIECE):
            return piece
        try:
            newest = os.open(self.log, os.O_RDONLY)
        except FileNotFoundError:  # during a rotation, or deleted
            return b""
        if os.path.sameopenfile(newest, self.file):
            os.close(newest)
            return b""
        piece = os.read(self.file, _PIECE)  # bytes written between our last read and the rotation
        if piece:
            os.close(newest)
            return piece
        os.close(self.file)
        self.file = newest
        return os.read(self.file, _PIECE)

    def close(self) -> None:
        os.close(self.file)


def _content(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return b""
