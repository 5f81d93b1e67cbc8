"""Checks which web origins may send requests to an endpoint: those that its owner lists."""

from __future__ import annotations

from collections.abc import Collection
from typing import TypeVar
from urllib.parse import urlsplit

from aiohttp import web
from multidict import CIMultiDict

from backendai.gates.appproxy.endpoints.refusals import Refused

_ABOUT_ORIGINS = "access-control-"
_METHODS = "GET, HEAD, POST, PUT, PATCH, DELETE"
_TEN_MINUTES = "600"
_EXPOSED = "Retry-After, X-Request-Id"
_Response = TypeVar("_Response", bound=web.StreamResponse)


def is_preflight(request: web.BaseRequest) -> bool:
    """Return whether the request is a browser's CORS preflight, which carries no token."""
    asked = "Access-Control-Request-Method" in request.headers
    return asked and request.method == "OPTIONS" and "Origin" in request.headers


def preflight(request: web.BaseRequest, origins: Collection[str]) -> web.Response:
    """Return the answer to a CORS preflight. Raises Refused for an origin that is not listed."""
    if request.headers["Origin"] not in origins:
        raise _foreign(request)
    headers = {
        "Access-Control-Allow-Methods": _METHODS,
        "Access-Control-Allow-Headers": request.headers.get("Access-Control-Request-Headers", ""),
        "Access-Control-Max-Age": _TEN_MINUTES,
        "Vary": "Origin, Access-Control-Request-Headers",
    }
    return allowed(request, web.Response(status=204, headers=headers), origins)


def refuse_foreign(request: web.BaseRequest, origins: Collection[str]) -> None:
    """Raise Refused for a request from a page of another origin that is not listed."""
    origin = request.headers.get("Origin", "")
    is_own = urlsplit(origin).netloc.lower() == request.headers.get("Host", "").lower()
    if origin and not is_own and origin not in origins:
        raise _foreign(request)


def allowed(request: web.BaseRequest, response: _Response, origins: Collection[str]) -> _Response:
    """Add the headers that let a page of a listed origin read the response, and return the response."""
    if origin := _listed(request, origins):
        _allow(response.headers, origin)
    return response


def settle(request: web.BaseRequest, headers: CIMultiDict[str], origins: Collection[str]) -> None:
    """Replace the replica's CORS headers by those of its endpoint."""
    for name in {name for name in headers if name.lower().startswith(_ABOUT_ORIGINS)}:
        headers.popall(name, None)
    if origin := _listed(request, origins):
        _allow(headers, origin)


def _allow(headers: CIMultiDict[str], origin: str) -> None:
    headers["Access-Control-Allow-Origin"] = origin
    headers["Access-Control-Expose-Headers"] = _EXPOSED
    headers.add("Vary", "Origin")


def _listed(request: web.BaseRequest, origins: Collection[str]) -> str:
    origin = request.headers.get("Origin", "")
    return origin if origin in origins else ""


def _foreign(request: web.BaseRequest) -> Refused:
    origin = request.headers.get("Origin", "")[:200]
    message = f"Pages of {origin} may not send requests here. The owner of the endpoint can list this origin."
    return Refused(403, "origin-not-listed", message)
