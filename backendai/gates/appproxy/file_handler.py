"""Gives browsers and scripts access to the files of folders.

Pages of the portal send a header, links a cookie, scripts an access token. A cookie only allows reading; changes need
a header, which no page of another origin can send.
"""

from __future__ import annotations

import logging

import aiohttp
from aiohttp import web
from aiohttp.web import FileField
from django.conf import settings
from multidict import MultiDictProxy

from backendai.base.core.messages import Message
from backendai.domain.cluster.app_domains import is_portal_origin
from backendai.domain.storage.file_origins import file_host
from backendai.gates.appproxy import pages
from backendai.gates.appproxy.file_grants import FolderTarget
from backendai.gates.appproxy.file_relay import FileRelay, NoSuchOperation
from backendai.gates.appproxy.guard import AppGuard
from backendai.gates.appproxy.headers import comes_from_elsewhere, own_cookies, set_cookie
from backendai.gates.appproxy.programs import BEARER, BY_TOKEN, PLACE, texts_of, with_token
from backendai.gates.appproxy.relay import StalledBody, TooManyConcurrentRequests
from backendai.gates.gateways.guard import Unknown
from backendai.gates.gateways.targets import Denied

logger = logging.getLogger(__name__)

LOOKS = frozenset({"GET", "HEAD"})
_DENIED = {"folder-not-ready": 409, "not-entered": 401}
_ALLOWED_METHODS = "GET, HEAD, POST, PUT, PATCH, DELETE"
_ALLOWED_HEADERS = (
    "Authorization, Content-Type, If-Match, If-None-Match, Range, Tus-Resumable, Upload-Length, Upload-Metadata, "
    "Upload-Offset"
)
_EXPOSED = (
    "Accept-Ranges, Content-Disposition, Content-Length, Content-Range, ETag, Location, Retry-After, Tus-Resumable, "
    "Upload-Expires, Upload-Length, Upload-Offset"
)
_PREFLIGHT_SECONDS = 600
_Form = MultiDictProxy[str | bytes | bytearray | FileField]


class FileHandler:
    """Answers requests to host names of folders."""

    def __init__(self, guard: AppGuard, relay: FileRelay) -> None:
        self._guard, self._relay = guard, relay

    async def handle(self, request: web.BaseRequest, host: str) -> web.StreamResponse | None:
        """Answer a request to the host name of a folder; None if the host name belongs to an app."""
        origin = request.headers.get("Origin", "")
        try:
            if request.method == "OPTIONS" and "Access-Control-Request-Method" in request.headers:
                return _preflight(origin) if await self._guard.may_ask(origin, host) else None
            kind, _, text = request.headers.get("Authorization", "").partition(" ")
            by_header = kind.lower() == "bearer" and 0 < len(text) <= 128 and text.isascii()
            if not by_header and comes_from_elsewhere(request.headers, request.method):
                return _no(request, 403, "foreign-origin", Message("Blocked: the request came from another site."))
            texts = (BEARER, text) if by_header else tuple(own_cookies(request.headers.get("Cookie", "")))
            target = await self._guard.target((texts, host))
        except Denied as error:
            shared = origin if await self._may_read(origin, host) else ""
            return _no(
                request, _DENIED.get(error.code, 403), error.code, error.message, origin=shared, portal=_way_in(host)
            )
        except Unknown:
            return _no(request, 503, "try-again", Message("Your sign-in could not be checked. Try again in a moment."))
        if not isinstance(target, FolderTarget):
            return None
        if origin and by_header and not is_portal_origin(origin, target.portal):
            return _no(request, 403, "foreign-origin", Message("Blocked: the request came from another site."))
        with self._guard.watching((texts, host)):
            return await self._pass_on(request, target, by_header=by_header, shared=_shared(origin))

    async def handle_by_path(self, request: web.BaseRequest) -> web.StreamResponse:
        """Answer a request whose path names the folder: to access tokens only, and to no page."""
        token, request = with_token(request)
        request[BY_TOKEN] = True
        place = request[PLACE]
        if not token or place.id is None or "Origin" in request.headers:
            message = Message("Send an access token, as 'Authorization: Bearer TOKEN'.")
            return _no(request, 401, "token-needed", message)
        key = texts_of(request, token), file_host(place.id)
        try:
            target = await self._guard.target(key)
        except Denied as error:
            return _no(request, _DENIED.get(error.code, 403), error.code, error.message)
        except Unknown:
            return _no(request, 503, "try-again", Message("Your sign-in could not be checked. Try again in a moment."))
        if not isinstance(target, FolderTarget) or target.folder_id != place.id:
            return _no(request, 401, "not-entered", Message("You may not open this folder."))
        with self._guard.watching(key):
            return await self._pass_on(request, target, by_header=True, shared={})

    async def _may_read(self, origin: str, host: str) -> bool:
        try:
            return bool(origin) and await self._guard.may_ask(origin, host)
        except Unknown:
            return False

    async def _pass_on(
        self, request: web.BaseRequest, target: FolderTarget, *, by_header: bool, shared: dict[str, str]
    ) -> web.StreamResponse:
        origin = shared.get("Access-Control-Allow-Origin", "")
        if request.method not in LOOKS and not by_header:
            return _no(request, 403, "header-needed", Message("Files are changed with a header, not with a cookie."))
        if request.method not in LOOKS and target.rights != "edit":
            return _no(
                request, 403, "folder-rights", Message("You may view this folder, but not change it."), origin=origin
            )
        try:
            return await self._relay.pass_on(request, target, shared)
        except NoSuchOperation:
            return _no(request, 404, "not-found", Message("Nothing found at this address."), origin=origin)
        except TooManyConcurrentRequests:
            message = Message("Too many requests for this folder are under way. Wait for some of them to end.")
            return _no(request, 429, "too-many-requests", message, origin=origin)
        except (aiohttp.ClientError, TimeoutError) as error:
            if isinstance(error.__cause__, StalledBody):  # the HTTP client reports another error
                return _no(
                    request, 408, "too-slow", Message("The upload made no progress for too long."), origin=origin
                )
            logger.info("file server %s: %s", target.storage_host, error)
            if (answer := request._payload_writer) is not None and answer.output_size and request.transport is not None:
                request.transport.abort()  # the answer was under way: the browser shall see that it is not whole
            message = Message(
                "The storage host {storage_host} does not answer. Try again later.", storage_host=target.storage_host
            )
            return _no(request, 503, "storage-silent", message, origin=origin)


def entered(request: web.BaseRequest, form: _Form, text: str) -> web.Response | None:
    """Return the answer to an accepted code for files; None if the form belongs to an app. A page of the portal gets
    the secret as JSON, a link gets a cookie and a redirect.
    """
    if "application/json" in request.headers.get("Accept", ""):
        origin = request.headers.get("Origin", "")
        return web.json_response({"token": text}, headers={"Cache-Control": "no-store"} | _shared(origin))
    way_on = form.get("next")
    if not isinstance(way_on, str):
        return None
    is_own = way_on.startswith(("/content?", "/archive?")) and way_on.isprintable() and way_on.isascii()
    cookie = {"Set-Cookie": set_cookie(text), "Referrer-Policy": "no-referrer"}
    return pages.see_other(way_on if is_own else "/", cookie)


def _preflight(origin: str) -> web.Response:
    headers = _shared(origin) | {
        "Access-Control-Allow-Methods": _ALLOWED_METHODS,
        "Access-Control-Allow-Headers": _ALLOWED_HEADERS,
        "Access-Control-Max-Age": str(_PREFLIGHT_SECONDS),
    }
    return web.Response(status=204, headers=headers)


def _shared(origin: str) -> dict[str, str]:
    """Return the CORS headers with which a page of this origin may read the answer. The caller has checked the
    origin.
    """
    if not origin:
        return {}
    return {"Access-Control-Allow-Origin": origin, "Access-Control-Expose-Headers": _EXPOSED, "Vary": "Origin"}


def _way_in(host: str) -> str:
    """Return the portal's URL for signing in and opening the folder."""
    return f"{settings.PORTAL_URL.rstrip('/')}/folders/at/{host.partition('.')[0].rpartition('-')[2]}/"


def _no(
    request: web.BaseRequest, status: int, code: str, message: str, *, origin: str = "", portal: str = ""
) -> web.Response:
    title = Message("These files cannot be opened")
    response = pages.refusal(request, status, code, message, title=title, portal=portal)
    response.headers.update(_shared(origin))
    if request.body_exists:
        response.force_close()  # what comes of the body is not read
    return response
