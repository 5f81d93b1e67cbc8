"""The lines of a log. A line ends with a newline only: a progress bar that returns to the line's start is one line."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import aclosing

_MORE = 16


def last_lines(data: bytes, count: int) -> bytes:
    """Return the last ``count`` lines; a beginning without its newline yet is one."""
    at = len(data) - data.endswith(b"\n")
    for _ in range(count):
        if (at := data.rfind(b"\n", 0, at)) < 0:
            return data
    return data[at + 1 :]


async def from_last_lines(
    read: Callable[[int, bool], AsyncGenerator[bytes]], count: int, *, follow: bool
) -> AsyncIterator[bytes]:
    """Yield a log's last ``count`` lines and, with ``follow``, what is written then.

    ``read`` yields the log from so many records before its end, and may go on. Container engines store a line above 16
    KiB as several records, and count these. So the log's end is read twice, first to count its lines.
    """
    records, size = count + 1, -1
    while True:
        lines, length = await _measured(read(records, False))
        if lines > count or length <= size:
            break
        records, size = records * _MORE, length
    surplus = max(lines - count, 0)
    async with aclosing(read(records, follow)) as pieces:
        async for piece in pieces:
            rest = piece
            while surplus and rest:
                _, newline, rest = rest.partition(b"\n")
                surplus -= bool(newline)
            if rest:
                yield rest


async def _measured(pieces: AsyncGenerator[bytes]) -> tuple[int, int]:
    """Return the number of lines and of bytes."""
    lines, length, last = 0, 0, b"\n"
    async with aclosing(pieces):
        async for piece in pieces:
            lines, length, last = lines + piece.count(b"\n"), length + len(piece), piece[-1:] or last
    return lines + (last != b"\n"), length
