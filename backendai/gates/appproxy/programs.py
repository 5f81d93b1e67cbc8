"""Requests of programs: an access token in place of cookies, and addresses that name what they open in their path.

Addresses by path need no name below the domain of apps: libraries resolve none under ``.localhost``. All of them share
one origin, so nothing there is a page to a browser, and no cookie is read or set.
"""

from __future__ import annotations

import contextlib
import re
from dataclasses import dataclass
from ipaddress import ip_address
from urllib.parse import unquote, urljoin, urlsplit, urlunsplit
from uuid import UUID

from aiohttp import web
from django.conf import settings
from multidict import CIMultiDict
from yarl import URL

from backendai.domain.cluster.app_domains import portal_names
from backendai.gates.appproxy.counts import APP, ENDPOINT, FILES
from backendai.gates.appproxy.headers import is_ours, own_cookies, wants_websocket

BEARER = ";"  # before an access token, where there are cookies otherwise: no cookie is this
BY_TOKEN = web.RequestKey("sent with an access token", bool)
_TOKEN = re.compile(r"(?:bearer|token) +(bai_.*)", re.IGNORECASE | re.DOTALL)  # Jupyter's clients say "token"
_IN_QUERY = re.compile(r"(?<=[?&])token=(bai_[^&]*)&?")
_PLACE = re.compile(
    r"/(?:(?P<app>apps)/(?P<session>[0-9a-f-]{32,36})/(?P<service>[\w.-]{1,64})"
    r"|(?P<files>folders)/(?P<folder>[0-9a-f-]{32,36})|endpoints/(?P<endpoint>[\w.%-]{1,200}))(?=[/?]|\Z)",
    re.ASCII,
)
_LONGEST, _NO_TOKEN = 128, "bai_"
_COMMON = re.compile(r"/v1(?=[/?]|\Z)")
_PORTS = {"http": 80, "https": 443}
_HERE = frozenset({"127.0.0.1", "localhost", "::1", "0.0.0.0"})  # noqa: S104  (names, nobody listens there)
_XSRF = "access-token"  # any text will do: only its two copies are compared
# A browser that gets there gives the answer no origin, no script and no sender.
_ISOLATION = {
    "Content-Security-Policy": "sandbox; default-src 'none'",
    "Cross-Origin-Resource-Policy": "same-origin",
    "X-Content-Type-Options": "nosniff",
}
_OF_PAGES = re.compile(r"access-control-|(?:set-cookie|service-worker-allowed|www-authenticate)\Z")


@dataclass(frozen=True, slots=True)
class Place:
    """What a path names. ``prefix`` is the part that names it; empty for the address that all endpoints share."""

    kind: str
    prefix: str
    id: UUID | None = None
    name: str = ""

    def within(self, request: web.BaseRequest) -> web.BaseRequest:
        """Return the request as the place sees it, without the prefix."""
        inner = _at(request, request.raw_path.removeprefix(self.prefix))
        inner[PLACE] = self
        return inner


PLACE = web.RequestKey("what its path names", Place)


def place_of(request: web.BaseRequest) -> Place | None:
    """Return what the path names, at a host name that is no app's; None if it names nothing."""
    if not _is_own_host(request.headers.get("Host", "")):
        return None
    if _COMMON.match(request.raw_path):
        return Place(ENDPOINT, "")
    if (found := _PLACE.match(request.raw_path)) is None:
        return None
    if found["endpoint"]:
        return Place(ENDPOINT, found[0], name=URL(found["endpoint"], encoded=True).path)
    try:
        place_id = UUID(found["session"] or found["folder"])
    except ValueError:
        return None
    return Place(APP if found["app"] else FILES, found[0], place_id, found["service"] or "")


def with_token(request: web.BaseRequest) -> tuple[str, web.BaseRequest]:
    """Return the access token of a request, and the request without it in its address; "" if it has none.

    Jupyter's clients in editors can send no header with a websocket, so theirs comes in the address.
    """
    said = [found for value in request.headers.getall("Authorization", ()) if (found := _TOKEN.match(value.strip()))]
    named = _IN_QUERY.search(request.raw_path)
    inner = _at(request, _without_token(request.raw_path)) if named else request
    if named and not said and wants_websocket(request):
        said = [named]
    if not said:
        return "", inner
    inner[BY_TOKEN] = True
    text = said[0][1]
    return text if text.isascii() and len(text) <= _LONGEST else _NO_TOKEN, inner


def texts_of(request: web.BaseRequest, token: str) -> tuple[str, ...]:
    """Return what the guard is asked with: the token, else the proxy's cookies."""
    return (BEARER, token) if token else tuple(own_cookies(request.headers.get("Cookie", "")))


def settle_request(request: web.BaseRequest, headers: CIMultiDict[str]) -> None:
    """Change the headers for an app that come from a program.

    No page can send an access token, so Jupyter's protection against requests of other pages is answered here.
    """
    if referer := headers.get("Referer"):
        headers["Referer"] = _without_token(referer)
    cookies = [] if PLACE in request else headers.get("Cookie", "").split("; ")
    if PLACE in request:
        headers.popall("Cookie", None)
    if BY_TOKEN in request:
        kept = [one for one in cookies if one and one.partition("=")[0] != "_xsrf"]
        headers["Cookie"] = "; ".join([*kept, f"_xsrf={_XSRF}"])
        headers["X-XSRFToken"] = _XSRF


def settle_answer(request: web.BaseRequest, headers: CIMultiDict[str], *, app_port: int = 0) -> None:
    """Lead redirects back to the app, and change an answer by path so that a browser does not take it for a page.
    ``app_port``: where the app listens, on its own machine.
    """
    _lead_back(request, headers, app_port)
    if PLACE not in request:
        return
    for name in {name for name in headers if _OF_PAGES.match(name.lower())}:
        headers.popall(name)
    headers.update(_ISOLATION)


def _at(request: web.BaseRequest, raw_path: str) -> web.BaseRequest:
    # With two slashes at its beginning it would name a host.
    return request.clone(rel_url=URL(f"/{raw_path.lstrip('/')}", encoded=True))


def _without_token(address: str) -> str:
    rest = _IN_QUERY.sub("", address)
    return address if rest == address else rest.rstrip("?&")


def _lead_back(request: web.BaseRequest, headers: CIMultiDict[str], app_port: int) -> None:
    """Change redirects to the app, as it sees itself, into paths of its own. Programs get no other redirects: many
    follow with their token by themselves, as they do with no other header and no address in a body.
    """
    is_told = any(map(is_ours, request.headers.getall("Authorization", ())))
    is_program = is_told or BY_TOKEN in request or PLACE in request
    for name in {"Location", "Content-Location"} & set(map(str.title, headers)):
        if led := _led_back(headers[name], request, app_port, is_program=is_program):
            headers[name] = led
        elif is_program:
            headers.popall(name)
    if is_program:
        headers.popall("Refresh", None)


def _led_back(location: str, request: web.BaseRequest, app_port: int, *, is_program: bool) -> str | None:
    """Return the path that leads there; None if it leads elsewhere or, by path, out of the place."""
    try:
        host = urlsplit(f"//{request.headers['Host']}")
        parts = urlsplit(urljoin(f"http://{host.netloc}{request.raw_path}", location))
        usual = _PORTS[parts.scheme]
        name, port = parts.hostname, parts.port or usual
        is_own = is_program and (name, port) == (host.hostname, host.port or usual)
    except (ValueError, KeyError):
        return None
    if not is_own and not (name in _HERE and port == app_port):
        return None
    path = "/" + parts.path.replace("\\", "/").lstrip("/")  # with two slashes it would name a host
    place = request.get(PLACE)
    if place is not None:
        # Clients and proxies in front take out the dots, also encoded ones, and what is before them.
        is_out = ".." in unquote(path).replace("\\", "/").split("/")
        if is_out or not (place.prefix or _COMMON.match(path)):
            return None
        path = f"{place.prefix}{path}"
    return urlunsplit(("", "", path, parts.query, parts.fragment))


def _is_own_host(header: str) -> bool:
    """Return whether the name is an address, or one of the platform's: others could be led here by their owners."""
    try:
        name = (urlsplit(f"//{header}").hostname or "").rstrip(".")
    except ValueError:
        return False
    with contextlib.suppress(ValueError):
        return bool(ip_address(name))
    return name in {"localhost", settings.APPS_DOMAIN, *portal_names()}
