"""Filters the headers between browser and app.

Drops headers of one connection, and the platform's cookies and tokens. Also headers by which an app could harm other
apps or the browser.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Iterable, Mapping
from urllib.parse import urlsplit

from aiohttp import http_writer, web
from django.conf import settings
from multidict import CIMultiDict, CIMultiDictProxy

_HOP = frozenset({"connection", "keep-alive", "proxy-connection", "te", "trailer", "transfer-encoding", "upgrade"}) | {
    "proxy-authenticate",
    "proxy-authorization",
}
_UNTOLD = frozenset({"forwarded", "expect", "x-real-ip"})
_UNTOLD_KINDS = re.compile(r"x-forwarded-|x-remote-|x-backendai-|.*-userid\Z")
_NOT_FOR_APPS = frozenset({"strict-transport-security", "clear-site-data", "alt-svc", "public-key-pins"}) | {
    "x-accel-redirect", "x-sendfile",  # web servers in front would send something else in the answer's place
}  # fmt: skip
_DOMAIN = re.compile(r";\s*domain\s*=[^;]*", re.IGNORECASE)
_OURS = re.compile(rb"(?i:backendai)\s|.*(bai_|bsk-)", re.DOTALL)  # signed requests, tokens
_CONTROL = re.compile(r"[\x00-\x08\x0a-\x1f\x7f]")
_PLAIN_COOKIE, _SECURE_COOKIE = "backendai-app", "__Host-backendai-app"


def cookie_name() -> str:
    """Return the name of the proxy's cookie. With HTTPS it has the prefix that ties a cookie to this host."""
    return _SECURE_COOKIE if settings.SECURE else _PLAIN_COOKIE


def own_cookies(header: str) -> list[str]:
    """Return the values of the proxy's cookie. There can be several, as apps under the same domain can set more."""
    name = cookie_name()
    found = [value for key, value in _pairs(header) if key == name and 0 < len(value) <= 128]
    return [value for value in found if value.isascii()][:4]


def to_app(
    headers: CIMultiDictProxy[str], *, host: str, remote: str, upgrade: bool = False, has_body: bool = True
) -> CIMultiDict[str]:
    """Return the headers of a request for the app. ``host``: the Host header of the browser. Names with underscores
    are dropped, as WSGI servers cannot tell ``X_Forwarded_For`` from ``X-Forwarded-For``. A password or token for the
    app itself passes, one of the platform does not.
    """
    dropped = _HOP | _UNTOLD | _named_in(headers.getall("Connection", ()))
    if not has_body:
        dropped |= {"content-length"}
    passed: CIMultiDict[str] = CIMultiDict()
    for name, value in headers.items():
        lower = name.lower()
        if lower == "cookie":
            value = _without_ours(value)
        if lower == "authorization" and is_ours(value):
            continue
        if lower in dropped or "_" in name or _UNTOLD_KINDS.match(lower) or (lower == "cookie" and not value):
            continue
        passed.add(name, value)
    passed["X-Forwarded-For"] = remote
    passed["X-Forwarded-Proto"] = "https" if settings.SECURE else "http"
    passed["X-Forwarded-Host"] = host
    if upgrade:
        passed["Connection"], passed["Upgrade"] = "Upgrade", "websocket"
    return passed


def to_browser(headers: CIMultiDict[str], *, upgrade: bool = False) -> CIMultiDict[str]:
    """Return the headers of the app's answer for the browser."""
    dropped = _HOP | _NOT_FOR_APPS | _named_in(headers.getall("Connection", ()))
    passed: CIMultiDict[str] = CIMultiDict()
    for name, value in headers.items():
        lower = name.lower()
        if lower == "set-cookie":
            name_of_cookie, equals, _ = value.partition(";")[0].partition("=")
            # A cookie without a name is sent as its bare value, which may read "backendai-app=...".
            if not equals or name_of_cookie.strip() in _ours() | {""}:
                continue
            value = _DOMAIN.sub("", value)
        if lower not in dropped:
            passed.add(name, value)
    if upgrade:
        passed["Connection"], passed["Upgrade"] = "Upgrade", "websocket"
    return passed


def wants_websocket(request: web.BaseRequest) -> bool:
    """Return whether the request asks for a websocket."""
    if request.method != "GET" or request.headers.get("Upgrade", "").lower() != "websocket":
        return False
    words = request.headers.get("Connection", "").lower().split(",")
    return "upgrade" in (word.strip() for word in words)


def is_ours(authorization: str) -> bool:
    """Return whether the header has a credential of the platform: a signature, or a token in any place, also in the
    user name or password of Basic.
    """
    said = authorization.strip().encode(errors="surrogateescape")
    if _OURS.match(said):
        return True
    try:
        return bool(_OURS.match(base64.b64decode(said.partition(b" ")[2].strip() + b"==")))
    except binascii.Error:
        return False


def keep_bytes() -> None:
    """Let aiohttp write header values with the bytes that it has read, in this process: its own writer leaves out those
    that are not UTF-8, which its parser reads as surrogates.
    """
    http_writer._serialize_headers = head_of  # type: ignore[assignment]


def head_of(first_line: str, headers: Mapping[str, str]) -> bytes:
    """Return the head of a request or an answer. Raises ValueError for a control character, which could end a line."""
    lines = [first_line, *[f"{name}: {value}" for name, value in headers.items()]]
    if _CONTROL.search("".join(lines)):
        raise ValueError("a header with a control character")
    return ("\r\n".join(lines) + "\r\n\r\n").encode(errors="surrogateescape")


def set_cookie(text: str) -> str:
    """Return the ``Set-Cookie`` header of the proxy's cookie: for this host only, hidden from scripts."""
    secure = "; Secure" if settings.SECURE else ""
    return f"{cookie_name()}={text}; Path=/; HttpOnly; SameSite=Lax{secure}"


def comes_from_elsewhere(headers: Mapping[str, str], method: str) -> bool:
    """Return whether a page of another origin made this request; False for plain links. Apps share one domain, so a
    browser sends their cookies with each other's requests.
    """
    origin = headers.get("Origin", "")
    if origin and urlsplit(origin).netloc.lower() != headers["Host"].lower():
        return True
    site = headers.get("Sec-Fetch-Site", "none")
    if site in ("none", "same-origin"):
        return False
    is_link = headers.get("Sec-Fetch-Mode") == "navigate" and headers.get("Sec-Fetch-Dest") == "document"
    return not (is_link and method in ("GET", "HEAD"))


def _ours() -> set[str]:
    return {_PLAIN_COOKIE, _SECURE_COOKIE}


def _pairs(header: str) -> Iterable[tuple[str, str]]:
    for part in header.split(";"):
        key, _, value = part.strip().partition("=")
        yield key, value


def _without_ours(header: str) -> str:
    platform = _ours() | {settings.SESSION_COOKIE_NAME, settings.CSRF_COOKIE_NAME}
    return "; ".join(part.strip() for part in header.split(";") if part.strip().partition("=")[0] not in platform)


def _named_in(values: Iterable[str]) -> frozenset[str]:
    return frozenset(word.strip().lower() for value in values for word in value.split(",") if word.strip())
