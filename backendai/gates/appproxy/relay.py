"""Forwards one request of a browser to the app, and streams the answer back."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Hashable
from email.utils import formatdate
from functools import lru_cache

import aiohttp
from aiohttp import HttpVersion11, web
from multidict import CIMultiDict

from backendai.base.core.messages import Message
from backendai.base.wire.splice import splice, take_over
from backendai.domain.compute.services.records.traffic import meter
from backendai.gates.appproxy.connection_limits import LimitedHandler
from backendai.gates.appproxy.counts import bytes_of
from backendai.gates.appproxy.headers import head_of, to_app, to_browser, wants_websocket
from backendai.gates.appproxy.programs import settle_answer, settle_request
from backendai.gates.gateways.answers import Answer, InvalidAnswer
from backendai.gates.gateways.exchanges import Exchange, Question, Tunnels
from backendai.gates.gateways.targets import Target
from backendai.gates.gateways.tunnel import SILENCE_SECONDS

MOST_OF_VISITOR, MOST_OF_KERNEL = 200, 1000  # requests and websockets at once
BODY_SECONDS = 60.0  # between two pieces of a body
_LONGEST_PONG = 131  # of a websocket's answer to a ping, all in all
_ASKED = web.RequestKey("asked for its body", bool)
_SAFE_TO_REPEAT = frozenset({"GET", "HEAD", "OPTIONS"})
_LENGTH_LESS = frozenset({204, 304})


class UnaskedUpgrade(aiohttp.ClientError):
    """The app answered 101 to a request that asked for no upgrade."""


class TooManyConcurrentRequests(aiohttp.ClientError):
    """Too many requests of one visitor, or of one session, are under way."""


class StalledBody(aiohttp.ClientError):
    """The visitor stopped sending in the middle of a body."""


class Relay:
    """Forwards requests to apps. Must be created and closed inside a running event loop."""

    def __init__(self) -> None:
        self._tunnels = Tunnels()
        self._under_way: Counter[Hashable] = Counter()

    def close(self) -> None:
        """Close every kept connection."""
        self._tunnels.close()

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
        has_body = request.body_exists and not upgrade
        question = question_of(request, (lambda: pieces_of(request)) if has_body else None)
        # An app may answer before it has read the whole body, and the rest would become the next request. So a
        # connection is not used again after an upgrade, and after a body only for the same visitor.
        apart = upgrade or (has_body and not target.visitor)
        _note_use(target)
        exchange = await self._tunnels.ask(
            target, question, apart=apart, may_repeat=lambda: request.method in _SAFE_TO_REPEAT and not has_body
        )
        try:
            return await pass_back(request, exchange, target)
        finally:
            exchange.close()
            if not upgrade:  # however long it took to send, it was used all the while
                _note_use(target)


def question_of(
    request: web.BaseRequest,
    pieces: Callable[[], AsyncIterator[bytes]] | None,
    *,
    change: Callable[[CIMultiDict[str]], None] | None = None,
    silence: float = SILENCE_SECONDS,
) -> Question:
    """Return the request for the app or replica. ``pieces``: of its body; ``change``: a last edit of its headers."""
    upgrade, method = wants_websocket(request), request.method
    headers = to_app(
        request.headers,
        host=request.headers["Host"],
        remote=request.remote or "",
        upgrade=upgrade,
        has_body=pieces is not None,
    )
    settle_request(request, headers)
    if change is not None:
        change(headers)
    is_chunked = pieces is not None and "Content-Length" not in headers
    if is_chunked:
        headers["Transfer-Encoding"] = "chunked"
    elif pieces is None and method not in _SAFE_TO_REPEAT:
        headers["Content-Length"] = "0"
    head = head_of(f"{method} {request.raw_path.partition('#')[0]} HTTP/1.1", headers)
    return Question(method, head, pieces, is_chunked, silence)


async def pass_back(
    request: web.BaseRequest,
    exchange: Exchange,
    target: Target,
    *,
    change: Callable[[CIMultiDict[str]], None] | None = None,
    heard: Callable[[], None] | None = None,
) -> web.StreamResponse:
    """Pass the answer to the browser. ``change``: a last edit of its headers; ``heard`` is called with every part.
    Raises UnaskedUpgrade and InvalidAnswer before anything is sent. An answer that breaks off ends the connection.
    """
    if exchange.answer.status != 101:
        return await _send(request, exchange, target, change=change, heard=heard)
    if not wants_websocket(request):  # the next requests of the visitor would reach the app unread
        raise UnaskedUpgrade(Message("the app switched protocols without being asked"))
    return await _join(request, exchange, target, heard=heard)


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


class _Passed(web.StreamResponse):
    """An answer that this module writes to the connection of its visitor."""

    def __init__(self, request: web.BaseRequest, answer: Answer, headers: CIMultiDict[str]) -> None:
        super().__init__(status=answer.status, reason=answer.reason, headers=headers)
        self.sent = 0
        is_new = request.version >= HttpVersion11
        has_length = "Content-Length" in self.headers
        self.is_chunked = is_new and not answer.is_bodiless and not has_length
        self._stays = request.keep_alive and (is_new or answer.is_bodiless or has_length)
        self._complete(answer, is_new=is_new)

    @property
    def keep_alive(self) -> bool:
        """Whether the connection is for another request."""
        return self._stays

    def force_close(self) -> None:
        """Close the connection after this answer."""
        self._stays = False

    @property
    def body_length(self) -> int:
        """The bytes of the body that were sent."""
        return self.sent

    async def prepare(self, request: web.BaseRequest) -> None:
        """Do nothing: it is sent."""

    async def write_eof(self, data: bytes = b"") -> None:
        """Do nothing: it is sent."""

    def _complete(self, answer: Answer, *, is_new: bool) -> None:
        headers = self.headers
        if answer.status in _LENGTH_LESS:
            headers.popall("Content-Length", None)
        if self.is_chunked:
            headers["Transfer-Encoding"] = "chunked"
        if not answer.is_bodiless and headers.get("Content-Length") != "0":
            headers.setdefault("Content-Type", "application/octet-stream")
        if "Date" not in headers:
            headers["Date"] = _date(int(time.time()))
        if headers.get("Connection", "") == "close":
            self._stays = False
        elif self._stays != is_new and "Connection" not in headers:
            headers["Connection"] = "keep-alive" if self._stays else "close"


@lru_cache(1)
def _date(now: int) -> str:
    return formatdate(now, usegmt=True)


async def _send(
    request: web.BaseRequest,
    exchange: Exchange,
    target: Target,
    *,
    change: Callable[[CIMultiDict[str]], None] | None,
    heard: Callable[[], None] | None,
) -> web.StreamResponse:
    """Stream the answer to the browser; while that takes nothing, the app sends nothing."""
    answer, headers = exchange.answer, to_browser(exchange.answer.headers)
    settle_answer(request, headers, app_port=target.port)
    if change is not None:
        change(headers)
    response = _Passed(request, answer, headers)
    transport, browser = _connection_of(request)
    begin = _head_of(request, response)

    def give(piece: bytes, before: bytes = b"") -> None:
        response.sent += len(piece)
        framed = b"%x\r\n%b\r\n" % (len(piece), piece) if response.is_chunked and piece else piece
        transport.write(before + framed if before else framed)
        if heard is not None:
            heard()
        _note_use(target)  # fetching something large is use, though nobody asks for more

    give(bytes(answer.early), begin)
    exchange.flow_to(give)
    with browser.fed_by(exchange):
        try:
            await answer.wait_for_end()
        except Exception as error:
            fault = aiohttp.ClientConnectionResetError if transport.is_closing() else aiohttp.ClientPayloadError
            transport.abort()  # the browser shall see that the answer is not whole
            raise fault(str(error)) from error
        if response.is_chunked:
            transport.write(b"0\r\n\r\n")
        await browser.drained()
    return response


def _head_of(request: web.BaseRequest, response: web.StreamResponse) -> bytes:
    try:
        version = request.version
        return head_of(f"HTTP/{version[0]}.{version[1]} {response.status} {response.reason}", response.headers)
    except ValueError:
        raise InvalidAnswer(Message("a line of its head has a control character")) from None


def _connection_of(request: web.BaseRequest) -> tuple[asyncio.Transport, LimitedHandler]:
    if request.transport is None:
        raise aiohttp.ClientConnectionResetError("the visitor has left")
    assert isinstance(request.protocol, LimitedHandler)
    return request.transport, request.protocol


async def _join(
    request: web.BaseRequest, exchange: Exchange, target: Target, *, heard: Callable[[], None] | None
) -> web.StreamResponse:
    """Copy data between browser and app until either closes; websocket frames are not parsed. ``heard`` is called when
    the app sends.
    """
    headers = to_browser(exchange.answer.headers, upgrade=True)
    settle_answer(request, headers)
    response = _Passed(request, exchange.answer, headers)
    response.force_close()
    transport, handler = _connection_of(request)
    transport.write(_head_of(request, response))
    app, browser = exchange.become_side(), take_over(handler)
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
    return response


def _note_use(target: Target) -> None:
    if target.session_id is not None:
        meter.touch(target.session_id)


def _is_pong(data: bytes) -> bool:
    """Return whether the data is a pong frame. Browsers send these by themselves, so they are no use of the app."""
    return len(data) <= _LONGEST_PONG and data[:1] == b"\x8a"
