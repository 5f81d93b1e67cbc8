"""One request of a browser, passed to the app, and the app's answer, passed back: piece by piece, none kept."""

from __future__ import annotations

from typing import Any

import aiohttp
from aiohttp import web
from yarl import URL

from backendai.appproxy.grants import Target
from backendai.appproxy.headers import to_app, to_browser
from backendai.appproxy.tunnel import TunnelConnector, address_through, new_client
from backendai.compute.services.traffic import meter
from backendai.wire.splice import splice, take_over

_LONGEST_PONG = 131  # of a websocket's answer to a ping, all in all
_SAFE_TO_REPEAT = frozenset({"GET", "HEAD", "OPTIONS"})


class Relay:
    """Passes requests on. Must be made and closed inside a running loop."""

    def __init__(self) -> None:
        # No limit here: how many connections there are is up to those who open them.
        self._connector = TunnelConnector(limit=0, keepalive_timeout=4.0)
        self._repeating = new_client(replays=True, connector=self._connector)
        self._once = new_client(replays=False, connector=self._connector)

    async def close(self) -> None:
        """Close every connection."""
        for client in (self._repeating, self._once):
            await client.close()
        await self._connector.close()

    async def pass_on(self, request: web.BaseRequest, target: Target) -> web.StreamResponse:
        """Return the answer of the app after it was sent. Raises aiohttp.ClientError (NoTunnel) while nothing was sent
        yet."""
        upgrade = wants_websocket(request)
        body = request.content if request.body_exists and not upgrade else None
        client = self._repeating if request.method in _SAFE_TO_REPEAT and body is None else self._once
        url = URL(address_through(target, request.raw_path), encoded=True)
        headers = to_app(request.headers, host=request.headers["Host"], remote=request.remote or "", upgrade=upgrade)
        asking = client.request(request.method, url, headers=headers, data=body, allow_redirects=False)
        _note_use(target)
        try:
            async with asking as answer:
                if answer.status == 101:
                    return await _join(request, answer, target)
                return await _send(request, answer, target)
        finally:
            if not upgrade:  # however long it took to send, it was used all the while
                _note_use(target)


def wants_websocket(request: web.BaseRequest) -> bool:
    """Return whether the request asks for a websocket."""
    words = request.headers.get("Connection", "").lower().split(",")
    named = "upgrade" in (word.strip() for word in words)
    return named and request.method == "GET" and request.headers.get("Upgrade", "").lower() == "websocket"


async def _send(request: web.BaseRequest, answer: aiohttp.ClientResponse, target: Target) -> web.StreamResponse:
    response = web.StreamResponse(status=answer.status, reason=answer.reason, headers=to_browser(answer.headers))
    await response.prepare(request)
    async for piece in answer.content.iter_any():
        await response.write(piece)
        _note_use(target)  # fetching something large is use, though nobody asks for more
    await response.write_eof()
    return response


async def _join(request: web.BaseRequest, answer: aiohttp.ClientResponse, target: Target) -> web.StreamResponse:
    """Join browser and app for good: a websocket's frames pass unread."""
    connection: Any = answer.connection
    response = web.StreamResponse(status=101, reason=answer.reason, headers=to_browser(answer.headers, upgrade=True))
    await response.prepare(request)
    app = take_over(connection.protocol, is_client=True)
    browser = take_over(request.protocol, is_client=False)
    browser.heard = lambda data: None if _is_pong(data) else _note_use(target)
    try:
        await splice(browser, app)
    finally:
        app.abort()
        answer.close()  # for good: a connection that was a websocket is never used again
    return response


def _note_use(target: Target) -> None:
    if target.session_id is not None:
        meter.touch(target.session_id)


def _is_pong(data: bytes) -> bool:
    """Return whether it is an answer to a ping: a browser gives it by itself, for a page that nobody looks at too."""
    return len(data) <= _LONGEST_PONG and data[:1] == b"\x8a"
