"""Passes each request to the app, the folder's file server or the endpoint of its host name."""

from __future__ import annotations

import asyncio
import logging
import time
from collections import Counter
from contextlib import AbstractContextManager, nullcontext

import aiohttp
from aiohttp import HttpVersion10, web
from django.conf import settings
from django.utils import translation

from backendai.base.core.messages import Message
from backendai.base.process.metrics_access import PATH, Scrapers, answer_to
from backendai.base.texts.translation import language_asked_for
from backendai.domain.cluster.app_domains import output_host
from backendai.domain.compute.services.apps.of_session import CODE_SECONDS, ENTER_PATH
from backendai.domain.storage.file_origins import folders_at
from backendai.gates.appproxy import output_page, pages
from backendai.gates.appproxy.connection_limits import LimitedHandler
from backendai.gates.appproxy.counts import APP, ENDPOINT, FILES, KIND, OTHER, registry
from backendai.gates.appproxy.endpoints.common import is_common
from backendai.gates.appproxy.endpoints.handler import EndpointHandler
from backendai.gates.appproxy.file_handler import FileHandler, entered
from backendai.gates.appproxy.guard import AppGuard, app_host
from backendai.gates.appproxy.headers import comes_from_elsewhere, set_cookie, wants_websocket
from backendai.gates.appproxy.programs import BY_TOKEN, PLACE, Place, place_of, texts_of, with_token
from backendai.gates.appproxy.relay import (
    Relay,
    TooManyConcurrentRequests,
    UnaskedUpgrade,
    ask_for_body,
    has_upgrade_body,
)
from backendai.gates.gateways.answers import InvalidAnswer
from backendai.gates.gateways.guard import Unknown
from backendai.gates.gateways.nodes import AppState, look
from backendai.gates.gateways.targets import Denied, Target
from backendai.gates.gateways.tunnel import NoTunnel

logger = logging.getLogger(__name__)

_METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "QUERY"}) | {
    "PROPFIND", "PROPPATCH", "MKCOL", "COPY", "MOVE", "LOCK", "UNLOCK", "REPORT", "SEARCH",  # WebDAV
}  # fmt: skip
_DENIED = {"session-ended": 410, "code-refused": 403, "code-used": 403} | {
    "token-scope": 403, "app-not-found": 403, "session-not-running": 409, "not-for-browsers": 409,
    "apps-impossible": 501,
}  # fmt: skip
_NO_TUNNEL = {"kernel-gone": 410, "ticket-refused": 502, "apps-impossible": 501, "app-not-listening": 502}
_LARGEST_CODE, _CODE_PATIENCE = 8192, 10.0
START_SECONDS, AGAIN_SECONDS, _LOOK_SECONDS = 30, 5, 0.5  # of programs, which see no page that waits
MOST_WAITING = 20  # requests of a token
_USUAL_SECONDS, _LINES = 10.0, 5  # of the log of an app that starts: the page loads itself again each second
_BY_HAND = Message("Start your server in the terminal, then try again.")
_UNSURE = Message("Your sign-in could not be checked. Try again in a moment.")
_ENDED = frozenset({"session-ended"})


class AppHandler:
    """Answers every request of the app proxy.

    ``guard`` checks access, ``relay`` forwards to apps, ``files`` to file servers and ``endpoints`` to replicas.
    """

    def __init__(
        self,
        guard: AppGuard,
        relay: Relay,
        nodes: aiohttp.ClientSession,
        files: FileHandler,
        endpoints: EndpointHandler,
    ) -> None:
        self._guard, self._relay, self._nodes, self._files = guard, relay, nodes, files
        self._endpoints = endpoints
        self._waiting: Counter[str] = Counter()

    async def handle(self, request: web.BaseRequest) -> web.StreamResponse:
        """Answer one request. Messages for people are in the request's language, those of endpoints in English."""
        host = app_host(request.headers.get("Host", ""))
        if host is not None and _is_plain(request):
            request[KIND] = ENDPOINT
            if (pool := self._endpoints.at(host)) is not None:
                return await self._endpoints.handle(request, pool)
            if is_common(host):
                return await self._endpoints.handle_common(request)
            if (answer := await self._endpoints.handle_new(request, host)) is not None:
                return answer
        if host is None and _is_plain(request) and (place := place_of(request)) is not None:
            request[KIND] = place.kind
            return await self._handle_by_path(place.within(request), place)
        request[KIND] = OTHER if host is None else APP if folders_at(host) is None else FILES
        with _in_language_of(request):
            return await self._handle(request, host)

    async def _handle_by_path(self, request: web.BaseRequest, place: Place) -> web.StreamResponse:
        """Answer a request whose path names what it wants. Apps and folders are open to access tokens only."""
        if place.kind == ENDPOINT:
            if not place.name:
                return await self._endpoints.handle_common(request)
            return await self._endpoints.handle_named(request, place.name)
        with _in_language_of(request):
            if place.kind == FILES:
                return await self._files.handle_by_path(request)
            assert place.id is not None
            return await self._open(request, f"{place.name}-{place.id.hex[:12]}.{settings.APPS_DOMAIN}")

    async def _handle(self, request: web.BaseRequest, host: str | None) -> web.StreamResponse:
        if request.version < HttpVersion10:  # its answers have no heads, so nothing else can come behind them
            return _last(pages.refusal(request, 505, "http-too-old", Message("Use HTTP/1.0 or newer.")))
        if host is None:
            return _no_app(request)
        if not _is_plain(request):
            raise web.HTTPMethodNotAllowed(request.method, _METHODS)
        if host == output_host():
            return output_page.answer(request)
        if request.path == pages.STYLE_PATH:
            return pages.style()
        if request.path == ENTER_PATH:
            return await self._enter(request, host)
        if folders_at(host) is not None and (answer := await self._files.handle(request, host)) is not None:
            return answer
        return await self._open(request, host)

    async def _open(self, request: web.BaseRequest, host: str) -> web.StreamResponse:
        if comes_from_elsewhere(request.headers, request.method):
            return pages.refusal(
                request, 403, "foreign-origin", Message("Blocked: the request came from another site.")
            )
        token, request = with_token(request)
        if PLACE in request and not token:
            message = Message("Send an access token, as 'Authorization: Bearer TOKEN'.")
            return _last(pages.refusal(request, 401, "token-needed", message))
        key = texts_of(request, token), host
        try:
            target = await self._guard.target(key)
        except Denied as error:
            return pages.refusal(
                request, _DENIED.get(error.code, 401), error.code, error.message, portal=_way_in(host, error.code)
            )
        except Unknown:
            return pages.refusal(request, 503, "try-again", _UNSURE)
        if not isinstance(target, Target) or (PLACE in request and target.session_id != request[PLACE].id):
            return pages.refusal(
                request, 403, "app-not-found", Message("This access token opens no app at this address.")
            )
        with self._guard.watching(key):
            if request.path == pages.OPEN_PATH and token:
                ready = web.json_response({"state": "ready"})
                return await self._wait(request, target, again=request.method == "POST") or ready
            if request.path == pages.OPEN_PATH:
                return await self._show(request, target, again=request.method == "POST")
            return await self._pass_on(request, target)

    async def _enter(self, request: web.BaseRequest, host: str) -> web.Response:
        # A length is always announced by browsers: without one, much could come before it is looked at.
        if request.method != "POST" or not 0 <= (request.content_length or -1) <= _LARGEST_CODE:
            message = Message("Open the app from the portal.")
            return _last(pages.refusal(request, 405, "post-only", message, portal=_way_in(host)))
        try:
            ask_for_body(request)
            async with asyncio.timeout(_CODE_PATIENCE):
                form = await request.post()
        except TimeoutError:
            return _last(pages.refusal(request, 408, "too-slow", Message("The request did not arrive in time.")))
        code = form.get("code", "")
        try:
            origin = request.headers.get("Origin", "")
            text = await self._guard.enter(code if isinstance(code, str) else "", host, origin)
        except Denied as error:
            return pages.refusal(
                request, _DENIED.get(error.code, 403), error.code, error.message, portal=_way_in(host, error.code)
            )
        except Unknown:
            message = Message(
                "Your sign-in could not be checked. Open the app again in {code_seconds} s.", code_seconds=CODE_SECONDS
            )
            return pages.refusal(request, 503, "try-again", message)
        if folders_at(host) is not None and (answer := entered(request, form, text)) is not None:
            return answer
        return pages.see_other(pages.OPEN_PATH, {"Set-Cookie": set_cookie(text), "Referrer-Policy": "no-referrer"})

    async def _show(self, request: web.BaseRequest, target: Target, *, again: bool) -> web.Response:
        """Redirect the browser to the app once it answers; until then, show the state of its start. ``again``: start a
        failed app again.
        """
        state = await self._look(request, target, again=again)
        if isinstance(state, web.Response):
            return state
        if state.state == "ready":
            return pages.see_other(state.path)
        if again:  # so that the page can be loaded again
            return pages.see_other(pages.OPEN_PATH)
        title = _title(state.state, target.service)
        if state.state == "starting":
            message, log = state.message or _so_far(state.seconds), "\n".join(state.log.splitlines()[-_LINES:])
            return pages.page(200, title=title, message=message, again=True, percent=state.percent, log=log)
        if state.state == "absent":
            return pages.page(502, title=title, message=f"{state.message} {_BY_HAND}", retry=pages.OPEN_PATH)
        return pages.page(502, title=title, message=state.message, log=state.log, retry=pages.OPEN_PATH)

    async def _wait(self, request: web.BaseRequest, target: Target, *, again: bool = False) -> web.Response | None:
        if self._waiting[target.visitor] >= MOST_WAITING:
            message = Message("Too many requests wait for the start of an app: wait for some of them to end.")
            return _last(pages.refusal(request, 429, "too-many-requests", message, retry_after=AGAIN_SECONDS))
        self._waiting[target.visitor] += 1
        try:
            return await self._start(request, target, again=again)
        finally:
            self._waiting[target.visitor] -= 1
            if not self._waiting[target.visitor]:
                del self._waiting[target.visitor]

    async def _start(self, request: web.BaseRequest, target: Target, *, again: bool) -> web.Response | None:
        """Start the app and wait until it answers; returns the refusal if it does not."""
        deadline = time.monotonic() + START_SECONDS * target.slowness
        while True:
            state = await self._look(request, target, again=again)
            if isinstance(state, web.Response):
                return state
            if state.state == "ready":
                return None
            if state.state != "starting":
                by_hand = f" {_BY_HAND}" if state.state == "absent" else ""
                log = {"log": "\n".join(state.log.splitlines()[-_LINES:])} if state.log else {}
                return pages.refusal(request, 502, f"app-{state.state}", f"{state.message}{by_hand}", told=log)
            if time.monotonic() >= deadline:
                message = state.message or _so_far(state.seconds)
                return pages.refusal(request, 503, "app-starting", message, retry_after=AGAIN_SECONDS)
            again = False
            await asyncio.sleep(_LOOK_SECONDS)

    async def _look(self, request: web.BaseRequest, target: Target, *, again: bool) -> AppState | web.Response:
        """Return the state of the app, which its agent starts if needed; else the refusal."""
        try:
            arguments = await self._guard.arguments(target)
            return await look(self._nodes, target, again=again, arguments=arguments)
        except Unknown:
            return pages.refusal(request, 503, "try-again", _UNSURE)
        except NoTunnel as error:
            return pages.refusal(request, _NO_TUNNEL.get(error.code, 503), error.code, error.message)

    async def _pass_on(
        self, request: web.BaseRequest, target: Target, *, is_started: bool = False
    ) -> web.StreamResponse:
        if has_upgrade_body(request):
            return _last(
                pages.refusal(request, 400, "upgrade-with-body", Message("A request for a websocket has no body."))
            )
        try:
            return await self._relay.pass_on(request, target)
        except NoTunnel as error:
            if error.code == "app-not-listening" and BY_TOKEN in request and not is_started:
                return await self._wait(request, target) or await self._pass_on(request, target, is_started=True)
            is_page = request.method == "GET" and "text/html" in request.headers.get("Accept", "") and not is_started
            if error.code == "app-not-listening" and is_page and not wants_websocket(request):
                return pages.see_other(pages.OPEN_PATH)
            return pages.refusal(request, _NO_TUNNEL.get(error.code, 502), error.code, error.message)
        except TooManyConcurrentRequests:
            message = Message("Too many requests to this app are under way: close some of its pages and try again.")
            return pages.refusal(request, 429, "too-many-requests", message)
        except UnaskedUpgrade:
            message = Message("The app switched to another protocol without being asked.")
            return _last(pages.refusal(request, 502, "app-switched", message))
        except aiohttp.ClientError as error:
            logger.info("%s of %s: %s", target.service, target.kernel_id, error)
            if isinstance(error, InvalidAnswer):
                message = Message("The answer of the app cannot be passed on: {fault}.", fault=error.fault)
                return pages.refusal(request, 502, "app-answer-invalid", message)
            return pages.refusal(
                request, 502, "app-broke-off", Message("The app closed the connection before it answered.")
            )


def _in_language_of(request: web.BaseRequest) -> AbstractContextManager[None]:
    language = language_asked_for(request.headers.get("Accept-Language", ""))
    # That of the process needs no change, which costs a twentieth of a short request.
    return nullcontext() if language == settings.LANGUAGE_CODE else translation.override(language)


def _last(response: web.Response) -> web.Response:
    """Close the connection after this response, and return the response."""
    response.force_close()
    return response


def _so_far(seconds: float) -> Message:
    said = f"{seconds:.0f}"
    if seconds < _USUAL_SECONDS:
        return Message("It has been starting for {seconds} s. The first start takes a few seconds.", seconds=said)
    return Message("It has been starting for {seconds} s, longer than usual.", seconds=said)


def _title(state: str, service: str) -> str:
    if state == "starting":
        return Message("Starting {service}", service=service)
    if state == "failed":
        return Message("{service} did not start", service=service)
    return (
        Message("{service} does not run", service=service)
        if state == "absent"
        else Message("{service} cannot be opened", service=service)
    )


def _way_in(host: str, code: str = "") -> str:
    """Return the portal's URL for signing in and opening the app; empty after the session's end."""
    return "" if code in _ENDED else f"{settings.PORTAL_URL.rstrip('/')}/apps/{host.partition('.')[0]}/"


def _is_plain(request: web.BaseRequest) -> bool:
    """Return whether the method is supported, the path begins with ``/`` and the version is HTTP/1.0 or newer."""
    is_known = request.method in _METHODS and request.raw_path.startswith("/")
    return is_known and request.version >= HttpVersion10


def _own_address(request: web.BaseRequest) -> str:
    """Return the visitor's address; empty if it is that of a proxy, whose visitors come from anywhere."""
    is_direct = isinstance(request.protocol, LimitedHandler) and request.protocol.caller
    return (request.remote or "") if is_direct else ""


def _no_app(request: web.BaseRequest) -> web.Response:
    if request.path == "/healthz":
        return web.Response(text="ok")
    if request.path == PATH:
        scrapers = Scrapers(settings.METRICS_TOKEN, tuple(settings.METRICS_NETWORKS))
        return answer_to(request, registry, scrapers, _own_address(request))
    return pages.refusal(
        request, 404, "no-such-app", Message("No app found at this address. Open apps from the portal.")
    )
