"""Frames of a program's stream: one byte for the kind, four bytes for the length, then the content."""

from __future__ import annotations

import asyncio

INPUT, RESIZE, SIGNAL = 0, 1, 2  # to the program; an empty INPUT closes its input
STDOUT, STDERR, EXIT = 1, 2, 3  # from the program
LARGEST = 256 * 1024


async def read(reader: asyncio.StreamReader) -> tuple[int, bytes]:
    """Return the next frame. Raises IncompleteReadError at the end, ValueError for a frame that is too large."""
    head = await reader.readexactly(5)
    size = int.from_bytes(head[1:], "big")
    if size > LARGEST:
        raise ValueError("the frame is too large")
    return head[0], await reader.readexactly(size) if size else b""


def frame(kind: int, content: bytes) -> bytes:
    return bytes((kind,)) + len(content).to_bytes(4, "big") + content
