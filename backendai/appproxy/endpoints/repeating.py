"""What an app proxy does again and again, whatever happens."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

logger = logging.getLogger(__name__)


async def repeat(step: Callable[[], Awaitable[None]], pause: Callable[[], float], what: str) -> None:
    """Take the step for ever, with a pause of so many seconds after each. An error ends no loop: it is logged when it
    differs from the one before."""
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
