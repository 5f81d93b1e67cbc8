"""Filters the headers between browser and app.

Drops headers of one connection, the platform's cookies and the visitor's credentials. Also headers by which an app
could harm other apps or the browser.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from urllib.parse import urlsplit

from django.conf import settings
from multidict import CIMultiDict, CIMultiDictProxy

_HOP = frozenset({"connection", "keep-alive", "proxy-connection", "te", "trailer", "transfer-encoding", "upgrade"}) | {
    "proxy-authenticate",
    "proxy-authorization",
}
_UNTOLD = frozenset({"authorization", "forwarded", "expect", "x-real-ip"})
_UNTOLD_KINDS = re.compile(r"x-forwarded-|x-remote-|x-backendai-|.*-userid\Z")
_NOT_FOR_APPS = frozenset({"strict-transport-security", "clear-site-data", "alt-svc", "public-key-pins"})
_DOMAIN = re.compile(r";\s*domain\s*=[^;]*", re.IGNORECASE)
_PLAIN_COOKIE, _SECURE_COOKIE = "backendai-app", "__Host-backendai-app"


def cookie_name() -> str:
    """Return the name of the proxy's cookie. With HTTPS it has the prefix that ties a cookie to this host."""
    return _SECURE_COOKIE if settings.SECURE else _PLAIN_COOKIE


def own_cookies(header: str) -> list[str]:
    """Return the values of the proxy's cookie. There can be several, as apps under the same domain can set more."""
    name = cookie_name()
    return [value for key, value in _pairs(header) if key == name and 0 < len(value) <= 128][:4]


def to_app(
    headers: CIMultiDictProxy[str], *, host: str, remote: str, upgrade: bool = False, has_body: bool = True
) -> CIMultiDict[str]:
    """Return the headers of a request for the app. ``host``: the Host header of the browser. Names with underscores
    are dropped, as WSGI servers cannot tell ``X_Forwarded_For`` from ``X-Forwarded-For``.
    """
    dropped = _HOP | _UNTOLD | _named_in(headers.getall("Connection", ()))
    if not has_body:
        dropped |= {"content-length"}
    passed: CIMultiDict[str] = CIMultiDict()
    for name, value in headers.items():
        lower = name.lower()
        if lower == "cookie":
            value = _without_ours(value)
        if lower in dropped or "_" in name or _UNTOLD_KINDS.match(lower) or (lower == "cookie" and not value):
            continue
        passed.add(name, value)
    passed["X-Forwarded-For"] = remote
    passed["X-Forwarded-Proto"] = "https" if settings.SECURE else "http"
    passed["X-Forwarded-Host"] = host
    if upgrade:
        passed["Connection"], passed["Upgrade"] = "Upgrade", "websocket"
    return passed


def to_browser(headers: CIMultiDictProxy[str], *, upgrade: bool = False) -> CIMultiDict[str]:
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
