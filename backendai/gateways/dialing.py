"""The client with which asynchronous doors dial a gateway."""

from __future__ import annotations

from typing import Any

import aiohttp

DIAL_SECONDS = 5.0


def new_client() -> aiohttp.ClientSession:
    """Return a client for one connection that lasts: there is nothing to pool. Must be closed in the same loop."""
    straight = aiohttp.TraceConfig()
    straight.on_request_redirect.append(_refuse)
    return aiohttp.ClientSession(
        timeout=aiohttp.ClientTimeout(total=None, sock_connect=DIAL_SECONDS), trace_configs=[straight]
    )


async def _refuse(*_: Any) -> None:
    """A gateway that sends us elsewhere would read the portal's own network through us."""
    raise aiohttp.ClientError("the gateway redirects")
