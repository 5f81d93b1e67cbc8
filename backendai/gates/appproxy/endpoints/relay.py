"""Streams a request to a replica and the answer back. Keeps only so much of a body as a retry needs."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from functools import partial

import aiohttp
from aiohttp import web
from multidict import CIMultiDict

from backendai.domain.serving.endpoint_table import EndpointEntry
from backendai.gates.appproxy.connection_limits import LimitedHandler
from backendai.gates.appproxy.endpoints.origins import settle
from backendai.gates.appproxy.endpoints.replicas import Known
from backendai.gates.appproxy.endpoints.service import Endpoints
from backendai.gates.appproxy.headers import wants_websocket
from backendai.gates.appproxy.relay import StalledBody, UnaskedUpgrade, pass_back, pieces_of, question_of
from backendai.gates.gateways.answers import InvalidAnswer
from backendai.gates.gateways.exchanges import Exchange
from backendai.gates.gateways.targets import Target

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


async def begin(
    endpoints: Endpoints, request: web.BaseRequest, endpoint: EndpointEntry, known: Known, body: Body | None, token: str
) -> Exchange:
    """Send the request to the replica and return the exchange when the head of the answer has arrived. Raises
    aiohttp.ClientError or TimeoutError.
    """
    # A server may answer before it has read the body, and then reads the rest as the next request. After a body the
    # connection is therefore used again for the same connection of the caller only: callers may share a token.
    caller = request.protocol.caller if isinstance(request.protocol, LimitedHandler) else ""
    apart = wants_websocket(request) or (body is not None and (endpoint.is_open or not caller))

    def without_token(headers: CIMultiDict[str]) -> None:
        if not endpoint.is_open:
            headers.popall("Authorization", None)  # of a public one it is not a token of the platform

    def may_repeat() -> bool:
        # The server may have closed the kept connection just before the request: then it has not seen it.
        is_harmless = request.method in _IDEMPOTENT or endpoint.is_repeatable
        return is_harmless and (body is None or body.can_repeat)

    pieces = body.read if body is not None else None
    question = question_of(request, pieces, change=without_token, silence=endpoint.answer_timeout)
    target = known.target(f"{token}.{caller}")
    return await endpoints.tunnels.ask(target, question, apart=apart, may_repeat=may_repeat)


async def answer_caller(
    request: web.BaseRequest,
    exchange: Exchange,
    target: Target,
    origins: Sequence[str],
    heard: Callable[[], None],
    *,
    is_last: bool,
) -> web.StreamResponse:
    """Stream the replica's answer to the caller, and return the response. The CORS headers are the endpoint's, not the
    replica's. ``heard`` is called with every piece; ``is_last``: the connection closes after the answer. If the
    replica breaks off, the connection was aborted, so that the caller sees it. Raises
    ReplicaDisconnected, CallerLeft.
    """
    try:
        return await pass_back(
            request, exchange, target, change=partial(_settle, request, origins, is_last), heard=heard
        )
    except (UnaskedUpgrade, InvalidAnswer):
        raise  # before anything was sent
    except (aiohttp.ClientError, TimeoutError):
        raise ReplicaDisconnected from None


def _settle(request: web.BaseRequest, origins: Sequence[str], is_last: bool, headers: CIMultiDict[str]) -> None:
    settle(request, headers, origins)
    if is_last:
        headers["Connection"] = "close"
