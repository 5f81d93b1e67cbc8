"""Streams a request to a replica and the answer back. Keeps only so much of a body as a retry needs."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from functools import partial

import aiohttp
from aiohttp import web
from multidict import CIMultiDict
from yarl import URL

from backendai.domain.serving.endpoint_table import EndpointEntry
from backendai.gates.appproxy.connection_limits import LimitedHandler
from backendai.gates.appproxy.endpoints.origins import settle
from backendai.gates.appproxy.endpoints.replicas import Known
from backendai.gates.appproxy.endpoints.service import Endpoints
from backendai.gates.appproxy.headers import to_app, wants_websocket
from backendai.gates.appproxy.programs import settle_request
from backendai.gates.appproxy.relay import StalledBody, UnaskedUpgrade, join, pieces_of, send
from backendai.gates.gateways.dialing import DIAL_SECONDS
from backendai.gates.gateways.targets import Target
from backendai.gates.gateways.tunnel import address_through, was_reused

KEPT_BYTES = 64 * 1024
_IDEMPOTENT = frozenset({"GET", "HEAD", "OPTIONS", "PUT", "DELETE"})


class TooLarge(Exception):
    """The request's body is larger than the endpoint allows."""


class ReplicaDisconnected(Exception):
    """The replica broke off its answer, so the proxy closed the caller's connection too."""


class CallerLeft(Exception):
    """The caller closed its connection before the end of the answer."""


class Body:
    """A request's body that can be sent again while only little of it has been read. ``whole``: the body, if it is
    read already.
    """

    def __init__(self, request: web.BaseRequest, most: int, whole: bytes | None = None) -> None:
        self._pieces, self._most = pieces_of(request), most
        self._kept, self._is_whole = bytearray(whole or b""), whole is not None
        self._size, self._has_begun = len(self._kept), False
        self.fault: TooLarge | StalledBody | None = None  # the HTTP client reports another error

    @property
    def can_repeat(self) -> bool:
        """Return whether the body can be sent again: nothing of it was read, or all of it, and that is kept. A sending
        that was cut off in between has ended the source.
        """
        return self._size == len(self._kept) and (self._is_whole or not self._has_begun)

    async def read(self) -> AsyncIterator[bytes]:
        """Yield the body from its beginning. Raises TooLarge, or StalledBody if the caller stops sending."""
        if self._kept:
            yield bytes(self._kept)
        if self._is_whole:
            return
        self._has_begun = True
        try:
            async for piece in self._pieces:
                self._size += len(piece)
                if self._size > self._most:
                    raise TooLarge(f"A body has at most {self._most} bytes here.")
                if self._size <= KEPT_BYTES:
                    self._kept += piece
                yield piece
        except (TooLarge, StalledBody) as error:
            self.fault = error
            raise
        self._is_whole = True


@asynccontextmanager
async def begin(
    endpoints: Endpoints, request: web.BaseRequest, endpoint: EndpointEntry, known: Known, body: Body | None, token: str
) -> AsyncIterator[aiohttp.ClientResponse]:
    """Send the request to the replica and yield the response, of which the headers have arrived. Raises
    aiohttp.ClientError, TimeoutError or TooLarge.
    """
    upgrade = wants_websocket(request)
    # A server may answer before it has read the body, and then reads the rest as the next request. After a body the
    # connection is therefore used again for the same connection of the caller only: callers may share a token.
    caller = request.protocol.caller if isinstance(request.protocol, LimitedHandler) else ""
    apart = upgrade or (body is not None and (endpoint.is_open or not caller))
    url = URL(address_through(known.target(f"{token}.{caller}"), request.raw_path), encoded=True)
    try:
        answer = await _ask(endpoints.client_for(apart=apart), url, request, endpoint, body)
    except (aiohttp.ServerDisconnectedError, aiohttp.ClientOSError):
        # The server may have closed the kept connection just before the request: then it has not seen it.
        is_harmless = request.method in _IDEMPOTENT or endpoint.is_repeatable
        if not (was_reused() and is_harmless and (body is None or body.can_repeat)):
            raise
        answer = await _ask(endpoints.client_for(apart=True), url, request, endpoint, body)
    async with answer:
        if answer.status == 101 and not upgrade:
            answer.close()
            raise UnaskedUpgrade("the replica switched protocols unasked")
        yield answer


def _ask(
    client: aiohttp.ClientSession, url: URL, request: web.BaseRequest, endpoint: EndpointEntry, body: Body | None
) -> Awaitable[aiohttp.ClientResponse]:
    headers = to_app(
        request.headers,
        host=request.headers["Host"],
        remote=request.remote or "",
        upgrade=wants_websocket(request),
        has_body=body is not None,
    )
    settle_request(request, headers)
    if not endpoint.is_open:
        headers.popall("Authorization", None)  # of a public one it is not a token of the platform
    return client.request(
        request.method,
        url,
        headers=headers,
        data=body.read() if body is not None else None,
        allow_redirects=False,
        timeout=aiohttp.ClientTimeout(total=None, sock_connect=DIAL_SECONDS, sock_read=endpoint.answer_timeout),
    )


async def pass_back(
    request: web.BaseRequest,
    answer: aiohttp.ClientResponse,
    target: Target,
    origins: Sequence[str],
    heard: Callable[[], None],
    *,
    is_last: bool,
) -> web.StreamResponse:
    """Stream the replica's answer to the caller, and return the response. The CORS headers are the endpoint's, not the
    replica's. ``heard`` is called with every piece; ``is_last``: the connection closes after the answer. If the
    replica breaks off, aborts the connection, so that the caller sees it. Raises
    ReplicaDisconnected, CallerLeft.
    """
    if answer.status == 101:
        return await join(request, answer, target, heard=heard)
    try:
        change = partial(_settle, request, origins, is_last)
        return await send(request, answer, target, change=change, heard=heard)
    except (aiohttp.ClientError, TimeoutError):
        if request.transport is None or request.transport.is_closing():
            raise CallerLeft from None
        request.transport.abort()
        raise ReplicaDisconnected from None


def _settle(request: web.BaseRequest, origins: Sequence[str], is_last: bool, headers: CIMultiDict[str]) -> None:
    settle(request, headers, origins)
    if is_last:
        headers["Connection"] = "close"
