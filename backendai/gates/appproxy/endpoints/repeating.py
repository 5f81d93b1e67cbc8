"""Repeats the regular steps of an app proxy, and logs their errors."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

logger = logging.getLogger(__name__)


async def repeat(step: Callable[[], Awaitable[None]], pause: Callable[[], float], what: str) -> None:
    """Run the step in an endless loop, with ``pause()`` seconds between runs. An error does not end the loop; it is
    logged if it differs from the previous error.
    """
    before = ""
    while True:
        try:
            await step()
            before = ""
        except Exception as error:
            if repr(error) != before:
                logger.exception("%s failed, and is tried again every %g s", what, pause())
            before = repr(error)
        await asyncio.sleep(pause())
