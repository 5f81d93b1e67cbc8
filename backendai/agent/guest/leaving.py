"""Detects that the other side of an unread connection has disconnected."""

from __future__ import annotations

import asyncio
import select

_LOOK_SECONDS = 1.0


async def gone(writer: asyncio.StreamWriter) -> None:
    """Return when the other side has closed the connection.

    The event loop detects that only while it reads, and nothing is read while a program or port does not accept input.
    Polls once a second.
    """
    looking = select.poll()
    looking.register(writer.get_extra_info("socket").fileno(), 0)  # poll always reports a hang-up
    while True:
        if looking.poll(0):
            return
        await asyncio.sleep(_LOOK_SECONDS)
