"""Notices that the other side of a connection is gone while nothing is read from it."""

from __future__ import annotations

import asyncio
import select

_LOOK_SECONDS = 1.0


async def gone(writer: asyncio.StreamWriter) -> None:
    """Return when the other side has closed the connection.

    The event loop tells it only of connections that it reads, and nothing is read while a program or port does not
    take its input. Looks once a second.
    """
    looking = select.poll()
    looking.register(writer.get_extra_info("socket").fileno(), 0)  # a hang-up is told without being asked for
    while True:
        if looking.poll(0):
            return
        await asyncio.sleep(_LOOK_SECONDS)
