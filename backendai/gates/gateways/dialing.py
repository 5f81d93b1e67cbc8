"""HTTP clients for asynchronous connections to a gateway."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from typing import Any
from weakref import WeakKeyDictionary

import aiohttp

DIAL_SECONDS = 5.0
_KEPT_SECONDS = 10.0
_kept: WeakKeyDictionary[asyncio.AbstractEventLoop, tuple[AsyncGenerator[Any], aiohttp.ClientSession]] = (
    WeakKeyDictionary()
)


def new_client(connector: aiohttp.BaseConnector | None = None) -> aiohttp.ClientSession:
    """Return a client for a gateway, by default for one connection without a time limit.

    It must be closed in the same event loop.
    """
    straight = aiohttp.TraceConfig()
    straight.on_request_redirect.append(_refuse)
    return aiohttp.ClientSession(
        connector=connector,
        timeout=aiohttp.ClientTimeout(total=None, sock_connect=DIAL_SECONDS),
        trace_configs=[straight],
    )


async def kept_client() -> aiohttp.ClientSession:
    """Return the shared client of this event loop, which keeps connections for further short requests.

    It is closed with the loop.
    """
    loop = asyncio.get_running_loop()
    if loop not in _kept:
        keeping = _keep()
        _kept[loop] = (keeping, await anext(keeping))
    return _kept[loop][1]


async def _keep() -> AsyncGenerator[aiohttp.ClientSession]:
    client = new_client(connector=aiohttp.TCPConnector(limit=0, keepalive_timeout=_KEPT_SECONDS))
    try:
        yield client
    finally:  # a loop that ends closes its generators
        await client.close()


async def _refuse(*_: Any) -> None:
    """Raise ClientError for a redirect, with which a gateway could read the portal's own network."""
    raise aiohttp.ClientError("the gateway redirects")
