"""An aiohttp application in a thread of its own, reached over real HTTP."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from aiohttp import web

from tests.patience import patient


@contextmanager
def served(app: web.Application) -> Iterator[str]:
    """Serve it on this machine and give its address."""
    loop, runner = (
        asyncio.new_event_loop(),
        web.AppRunner(app, access_log=None, handler_cancellation=True, shutdown_timeout=1.0),
    )
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()

    async def start() -> int:
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        return int(runner.addresses[0][1])

    try:
        yield f"http://127.0.0.1:{asyncio.run_coroutine_threadsafe(start(), loop).result(20)}"
    finally:
        asyncio.run_coroutine_threadsafe(runner.cleanup(), loop).result(20)
        loop.call_soon_threadsafe(loop.stop)
        thread.join(patient(20))
        loop.close()
