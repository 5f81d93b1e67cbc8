"""Forwards one request of a browser to the app, and streams the answer back."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable, Hashable
from typing import Any

import aiohttp
from aiohttp import HttpVersion11, web
from multidict import CIMultiDict
from yarl import URL

from backendai.base.core.messages import Message
from backendai.base.wire.splice import splice, take_over
from backendai.domain.compute.services.records.traffic import meter
from backendai.gates.appproxy.counts import bytes_of
from backendai.gates.appproxy.headers import to_app, to_browser, wants_websocket
from backendai.gates.appproxy.programs import settle_answer, settle_request
from backendai.gates.gateways.targets import Target
from backendai.gates.gateways.tunnel import LARGEST_HEADER, TunnelConnector, address_through, new_client

MOST_OF_VISITOR, MOST_OF_KERNEL = 200, 1000  # requests and websockets at once
BODY_SECONDS = 60.0  # between two pieces of a body
_MOST_HEADERS = 128  # the limit of aiohttp
_LONGEST_PONG = 131  # of a websocket's answer to a ping, all in all
_ASKED = web.RequestKey("asked for its body", bool)
_SAFE_TO_REPEAT = frozenset({"GET", "HEAD", "OPTIONS"})


class UnaskedUpgrade(aiohttp.ClientError):
    """The app answered 101 to a request that asked for no upgrade."""


class TooManyConcurrentRequests(aiohttp.ClientError):
    """Too many requests of one visitor, or of one session, are under way."""


class InvalidAnswer(aiohttp.ClientError):
    """A line of the answer's head has a control character."""


class StalledBody(aiohttp.ClientError):
    """The visitor stopped sending in the middle of a body."""


class Relay:
    """Forwards requests to apps. Must be created and closed inside a running event loop."""

    def __init__(self) -> None:
        # No limit here: how many connections there are is up to those who open them.
        self._kept = TunnelConnector(limit=0)
        self._closed_after_use = TunnelConnector(limit=0, force_close=True)
        self._repeating = new_client(replays=True, connector=self._kept)
        self._once = new_client(replays=False, connector=self._kept)
        self._apart = new_client(replays=False, connector=self._closed_after_use)
        self._under_way: Counter[Hashable] = Counter()

    async def close(self) -> None:
        """Close every connection."""
        for client in (self._repeating, self._once, self._apart):
            await client.close()
        for connector in (self._kept, self._closed_after_use):
            await connector.close()

    async def pass_on(self, request: web.BaseRequest, target: Target) -> web.StreamResponse:
        """Forward the request to the app, send its answer to the browser, and return the answer. Before anything is
        sent, raises aiohttp.ClientError (NoTunnel, UnaskedUpgrade, Crowded).
        """
        visitor = target.visitor or request.remote
        limits = {("visitor", visitor, target.kernel_id): MOST_OF_VISITOR, ("kernel", target.kernel_id): MOST_OF_KERNEL}
        if any(self._under_way[key] >= most for key, most in limits.items()):
            raise TooManyConcurrentRequests(Message("too many requests are under way"))
        self._under_way.update(limits.keys())
        try:
            return await self._pass_on(request, target)
        finally:
            for key in limits:
                self._under_way[key] -= 1
                if self._under_way[key] <= 0:
                    del self._under_way[key]

    async def _pass_on(self, request: web.BaseRequest, target: Target) -> web.StreamResponse:
        upgrade = wants_websocket(request)
        body = pieces_of(request) if request.body_exists and not upgrade else None
        client = self._client(request, target, has_body=body is not None, upgrade=upgrade)
        url = URL(address_through(target, request.raw_path), encoded=True)
        headers = to_app(
            request.headers,
            host=request.headers["Host"],
            remote=request.remote or "",
            upgrade=upgrade,
            has_body=body is not None,
        )
        settle_request(request, headers)
        asking = client.request(request.method, url, headers=headers, data=body, allow_redirects=False)
        _note_use(target)
        try:
            async with asking as answer:
                if answer.status == 101:
                    if not upgrade:  # the next requests of the visitor would reach the app unread
                        answer.close()
                        raise UnaskedUpgrade(Message("the app switched protocols without being asked"))
                    return await join(request, answer, target)
                return await send(request, answer, target)
        finally:
            if not upgrade:  # however long it took to send, it was used all the while
                _note_use(target)

    def _client(
        self, request: web.BaseRequest, target: Target, *, has_body: bool, upgrade: bool
    ) -> aiohttp.ClientSession:
        """Return the HTTP client for a request. An app may answer before it has read the whole body, and the rest
        would become the next request. So a connection is not used again after an upgrade, and after a body only for
        the same visitor.
        """
        if upgrade or (has_body and not target.visitor):
            return self._apart
        is_repeatable = request.method in _SAFE_TO_REPEAT and not has_body
        return self._repeating if is_repeatable else self._once


def fault_of(error: aiohttp.ClientResponseError | InvalidAnswer) -> Message:
    """Return what was wrong with the head of an answer that came and cannot be passed on."""
    if isinstance(error, InvalidAnswer):
        return Message("a line of its head has a control character")
    said = getattr(error.__cause__, "message", "").partition("\n")[0].rstrip(": ")
    if said.startswith("Too many headers"):
        return Message("its answer has more than {most} headers", most=_MOST_HEADERS)
    if said.startswith("Got more than"):
        return Message("a header of its answer is longer than {kilobytes} KiB", kilobytes=LARGEST_HEADER // 1024)
    return Message("its answer is not valid HTTP ({reason})", reason=said[:100] or "no reason given")


def ask_for_body(request: web.BaseRequest) -> None:
    """Tell a client that waits for it (``Expect: 100-continue``) to send the body of its request. Does so once."""
    if waits_to_send(request) and request.transport is not None:
        request[_ASKED] = True
        request.transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")


def waits_to_send(request: web.BaseRequest) -> bool:
    """Return whether the client sends the body of this request only after an interim answer."""
    expects = request.headers.get("Expect", "").lower() == "100-continue"
    return expects and request.body_exists and request.version >= HttpVersion11 and _ASKED not in request


async def pieces_of(request: web.BaseRequest) -> AsyncIterator[bytes]:
    """Yield the parts of the body as they arrive. Raises StalledBody if the visitor stops sending."""
    ask_for_body(request)
    pieces = request.content.iter_any()
    while True:
        try:
            async with asyncio.timeout(BODY_SECONDS):
                yield await anext(pieces)
        except StopAsyncIteration:
            return
        except TimeoutError:
            raise StalledBody(
                Message("the client sent nothing for {body_seconds} s", body_seconds=f"{BODY_SECONDS:.0f}")
            ) from None


def has_upgrade_body(request: web.BaseRequest) -> bool:
    """Return whether a request for a websocket announces a body, which is not allowed."""
    if not wants_websocket(request):
        return False
    lengths = request.headers.getall("Content-Length", [])
    return "Transfer-Encoding" in request.headers or any(length.strip() != "0" for length in lengths)


async def send(
    request: web.BaseRequest,
    answer: aiohttp.ClientResponse,
    target: Target,
    *,
    change: Callable[[CIMultiDict[str]], None] | None = None,
    heard: Callable[[], None] | None = None,
) -> web.StreamResponse:
    """Stream the answer to the browser without storing it. ``change``: a last edit of its headers; ``heard`` is called
    with every part. Raises InvalidAnswer before anything is sent.
    """
    headers = to_browser(answer.headers)
    settle_answer(request, headers, app_port=target.port)
    if change is not None:
        change(headers)
    response = web.StreamResponse(status=answer.status, reason=answer.reason, headers=headers)
    try:
        await response.prepare(request)
    except ValueError:
        answer.close()
        raise InvalidAnswer from None
    async for piece in answer.content.iter_any():
        if heard is not None:
            heard()
        await response.write(piece)
        _note_use(target)  # fetching something large is use, though nobody asks for more
    await response.write_eof()
    return response


async def join(
    request: web.BaseRequest,
    answer: aiohttp.ClientResponse,
    target: Target,
    *,
    heard: Callable[[], None] | None = None,
) -> web.StreamResponse:
    """Copy data between browser and app until either closes; websocket frames are not parsed. ``heard`` is called when
    the app sends.
    """
    connection: Any = answer.connection
    headers = to_browser(answer.headers, upgrade=True)
    settle_answer(request, headers)
    response = web.StreamResponse(status=101, reason=answer.reason, headers=headers)
    await response.prepare(request)
    app = take_over(connection.protocol, is_client=True)
    browser = take_over(request.protocol, is_client=False)
    received, sent = bytes_of(request)

    def from_browser(data: bytes) -> None:
        received(len(data))
        if not _is_pong(data):
            _note_use(target)

    def from_app(data: bytes) -> None:
        sent(len(data))
        if heard is not None:
            heard()

    browser.on_bytes, app.on_bytes = from_browser, from_app
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
    """Return whether the data is a pong frame. Browsers send these by themselves, so they are no use of the app."""
    return len(data) <= _LONGEST_PONG and data[:1] == b"\x8a"
