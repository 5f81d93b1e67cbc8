"""Handles one request to an endpoint: checks its token and limits, selects a replica and streams the answer."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable, Iterator

import aiohttp
from aiohttp import web
from django.conf import settings

from backendai.domain.serving.endpoint_table import ANYBODY, EndpointEntry
from backendai.domain.serving.services.tokens import digest_of
from backendai.domain.storage.file_origins import folders_at
from backendai.gates.appproxy.endpoints import common, origins
from backendai.gates.appproxy.endpoints.refusals import Refused, answer_of, broken, no_wake, not_known, stopped
from backendai.gates.appproxy.endpoints.relay import (
    Body,
    CallerLeft,
    ReplicaDisconnected,
    TooLarge,
    answer_caller,
    begin,
)
from backendai.gates.appproxy.endpoints.replicas import Blocked, Known, Pool, Stopped
from backendai.gates.appproxy.endpoints.service import Endpoints
from backendai.gates.appproxy.endpoints.table_cache import DatabaseUnavailable
from backendai.gates.appproxy.guard import has_id
from backendai.gates.appproxy.headers import own_cookies, wants_websocket
from backendai.gates.appproxy.pages import OWN
from backendai.gates.appproxy.relay import has_upgrade_body
from backendai.gates.gateways.tunnel import NoTunnel
from backendai.scheduler.serving.balance import is_fault


def digest_in(request: web.BaseRequest) -> str:
    """Return the digest of the request's bearer token; empty if there is none."""
    kind, _, text = request.headers.get("Authorization", "").partition(" ")
    return digest_of(text.strip()) if kind.lower() == "bearer" and text.strip() and text.isascii() else ""


def may_be_for_endpoint(request: web.BaseRequest, host: str) -> bool:
    """Return whether a request may be for an endpoint. Endpoints and apps have similar host names, but only browsers
    of apps send the proxy's cookies or ask for its own pages. Folders have host names of their own kind.
    """
    label, _, domain = host.partition(".")
    is_to_app = request.path.startswith(OWN) or bool(own_cookies(request.headers.get("Cookie", "")))
    return domain == settings.APPS_DOMAIN and has_id(label) and not is_to_app and folders_at(host) is None


REPEATED_SHARE, WINDOW_SECONDS, FREE_REPEATS = 0.2, 10.0, 3


class Repeats:
    """Limits retries to a small share of the requests of ten seconds, as they would double the load of a broken
    endpoint. ``now`` returns monotonic seconds.
    """

    def __init__(self, now: Callable[[], float]) -> None:
        self._now, self._window_began = now, now()
        self._asked = self._repeated = 0

    def note_request(self) -> None:
        """Count one request."""
        now = self._now()
        if now - self._window_began > WINDOW_SECONDS:
            self._asked, self._repeated, self._window_began = 0, 0, now
        self._asked += 1

    def allow(
        self, request: web.BaseRequest, endpoint: EndpointEntry, body: Body | None, error: Exception, tries: int
    ) -> bool:
        """Return whether the request may be retried on another replica after this error. Counts the retry."""
        if tries > 1 or wants_websocket(request) or (body is not None and not body.can_repeat):
            return False
        was_sent = not isinstance(error, NoTunnel)
        is_harmless = (request.method in ("GET", "HEAD") and body is None) or endpoint.is_repeatable
        if was_sent and (not is_harmless or isinstance(error, TimeoutError)):
            return False
        if self._repeated >= FREE_REPEATS and self._repeated >= REPEATED_SHARE * self._asked:
            return False
        self._repeated += 1
        return True


logger = logging.getLogger(__name__)

MOST_HELD, LONGEST_HOLD = 100, 600.0
AGAIN_SECONDS, _LOOK_SECONDS = 0.5, 0.1
_AWAY = frozenset({"node-unreachable", "agent-stops"})
_WORDS: dict[type[Exception], str] = {ReplicaDisconnected: "It broke off in its answer."}


class EndpointHandler:
    """Handles requests to endpoints."""

    def __init__(self, endpoints: Endpoints) -> None:
        self._endpoints = endpoints
        self._repeats = Repeats(time.monotonic)
        self._stops = False

    async def finish(self, grace: float) -> None:
        """Wait until no request is open, for ``grace`` seconds at most. Connections close after their answer."""
        self._stops = True
        for _ in range(int(grace / _LOOK_SECONDS)):
            if not self._endpoints.is_busy:
                return
            await asyncio.sleep(_LOOK_SECONDS)

    def at(self, host: str) -> Pool | None:
        """Return the pool of the endpoint with this host name; None if there is none."""
        return self._endpoints.at(host)

    async def handle(self, request: web.BaseRequest, pool: Pool) -> web.StreamResponse:
        """Answer one request to the endpoint of the pool."""
        return await self._handle(request, pool, None)

    async def handle_new(self, request: web.BaseRequest, host: str) -> web.StreamResponse | None:
        """Answer a request to an endpoint that is too new for the endpoint table; None if there is none."""
        if not may_be_for_endpoint(request, host):
            return None
        try:
            pool = await self._endpoints.find(host)
        except DatabaseUnavailable:
            return _last(answer_of(request, not_known())) if digest_in(request) else None
        return None if pool is None else await self._handle(request, pool, None)

    async def handle_named(self, request: web.BaseRequest, name: str) -> web.StreamResponse:
        """Answer a request whose path names the endpoint, by its label or its name."""
        try:
            pool = self._endpoints.pools.get(name)
            if pool is None and has_id(name):
                pool = await self._endpoints.find(f"{name}.{settings.APPS_DOMAIN}")
            if pool is None:
                self._refuse_untrusted()
                pool = common.pool_for(await self._opened(digest_in(request)), name)
        except DatabaseUnavailable:
            return _last(answer_of(request, not_known()))
        except Refused as refused:
            return _last(answer_of(request, refused))
        return await self._handle(request, pool, None)

    async def handle_common(self, request: web.BaseRequest) -> web.StreamResponse:
        """Answer a request to the shared address: with the list of models, or by its model's endpoint."""
        try:
            if origins.is_preflight(request):
                return origins.preflight(request, common.origins_of(self._endpoints.pools.values()))
            self._refuse_untrusted()
            opened = await self._opened(digest_in(request))
            if (listed := common.models_answer(request, opened)) is not None:
                return origins.allowed(request, listed, common.origins_of(opened))
            model, beginning = await common.model_asked_for(request)
            pool = common.pool_for(opened, model)
        except Refused as refused:
            return origins.allowed(
                request, _last(answer_of(request, refused)), common.origins_of(self._endpoints.pools.values())
            )
        return await self._handle(request, pool, beginning)

    async def _handle(self, request: web.BaseRequest, pool: Pool, beginning: bytes | None) -> web.StreamResponse:
        try:
            if has_upgrade_body(request):
                raise Refused(400, "upgrade-with-body", "A request for a websocket has no body.")
            if origins.is_preflight(request):
                return origins.preflight(request, pool.endpoint.origins)
            origins.refuse_foreign(request, pool.endpoint.origins)
            token = await self._admit(request, pool)
            pool.counters.requests += 1
            self._repeats.note_request()
            transport = request.transport
            with pool.admitted(token, lambda: transport.abort() if transport else None):
                return await self._answer(request, pool, token, beginning)
        except (ReplicaDisconnected, CallerLeft):
            return _last(web.Response(status=502))  # not read: the connection is closed
        except Stopped:
            return self._refuse(request, pool, stopped())
        except Refused as refused:
            return self._refuse(request, pool, refused)

    def _refuse(self, request: web.BaseRequest, pool: Pool, refused: Refused) -> web.StreamResponse:
        pool.counters.refused += 1
        return origins.allowed(request, _last(answer_of(request, refused)), pool.endpoint.origins)

    def _refuse_untrusted(self) -> None:
        if not self._endpoints.keeper.is_trusted:
            text = "The portal's database has been away for too long to say who may ask. Try again later."
            raise Refused(503, "book-too-old", text, retry_after=60)

    async def _opened(self, digest: str) -> common.Available:
        """Return the endpoints that the token may use, and the public endpoints. Raises Refused."""
        try:
            return common.opened_by(self._endpoints.pools.values(), digest, time.time())
        except Refused:
            if not digest:
                raise
        await self._endpoints.keeper.look_anew()
        return common.opened_by(self._endpoints.pools.values(), digest, time.time())

    async def _admit(self, request: web.BaseRequest, pool: Pool) -> str:
        """Return the id of the request's token, or ``ANYBODY`` for a public endpoint. Raises Refused."""
        self._refuse_untrusted()
        if pool.endpoint.is_stopped:
            raise stopped()
        if pool.endpoint.is_open:
            return ANYBODY
        digest = digest_in(request)
        if (found := pool.endpoint.token_of(digest)) is None and digest:
            await self._endpoints.keeper.look_anew()
            found = pool.endpoint.token_of(digest)
        if found is None or found.is_over(time.time()):
            message = "A valid token of this endpoint is needed: send it as 'Authorization: Bearer TOKEN'."
            raise Refused(401, "token-refused", message)
        if wait := self._endpoints.rates.take(found.id, found.per_minute):
            message = f"The limit of requests per minute of this token is {found.per_minute}. Wait {wait:.0f} s."
            raise Refused(429, "rate-limited", message, retry_after=wait)
        return found.id

    async def _answer(
        self, request: web.BaseRequest, pool: Pool, token: str, beginning: bytes | None
    ) -> web.StreamResponse:
        if (request.content_length or 0) > pool.endpoint.max_body:
            raise Refused(413, "body-too-large", f"A body has at most {pool.endpoint.max_body} bytes here.")
        has_body = request.body_exists and not wants_websocket(request)
        body = Body(request, pool.endpoint.max_body, beginning) if has_body else None
        tried: list[str] = []
        fault: Exception | None = None
        patience = time.monotonic() + pool.endpoint.queue_seconds
        while True:
            known = await self._replica(request, pool, token, tried)
            if known is None:
                assert fault is not None
                if not _is_away(fault) or time.monotonic() >= patience:
                    raise broken(fault) from fault
                # The agent restarts or is lost: the request has reached no replica, so it can wait.
                with pool.counters.queued.one_more():
                    await asyncio.sleep(AGAIN_SECONDS)
                tried.clear()
                continue
            with _given_back(pool, known), pool.counters.open.one_more():
                try:
                    return await self._through(request, pool, known, body, token)
                except (aiohttp.ClientError, TimeoutError, TooLarge) as error:
                    if body is not None and body.fault is not None:
                        status = 413 if isinstance(body.fault, TooLarge) else 408
                        raise Refused(status, "body-refused", str(body.fault)) from error
                    self._note_broken(known, error)
                    tried.append(known.entry.id)
                    if not _is_away(error) and not self._repeats.allow(request, pool.endpoint, body, error, len(tried)):
                        raise broken(error) from error
                    fault = error

    async def _through(
        self, request: web.BaseRequest, pool: Pool, known: Known, body: Body | None, token: str
    ) -> web.StreamResponse:
        """Send the request to one replica and stream its answer. Raises ClientError before the first byte."""
        began, counters = time.monotonic(), pool.counters

        def heard() -> None:
            known.heard_at = time.monotonic()

        try:
            exchange = await begin(self._endpoints, request, pool.endpoint, known, body, token)
            with contextlib.closing(exchange):
                heard()
                response = await answer_caller(
                    request, exchange, known.target(token), pool.endpoint.origins, heard, is_last=self._stops
                )
        except (asyncio.CancelledError, CallerLeft):
            counters.left()
            raise
        except NoTunnel:
            raise  # the request has not reached the replica: no fault to count
        except (aiohttp.ClientError, TimeoutError, TooLarge, ReplicaDisconnected) as error:
            if body is not None and body.fault is not None:
                counters.left()
                raise
            if isinstance(error, ReplicaDisconnected):
                self._note_broken(known, error)
            counters.complete(time.monotonic() - began, failed=True)
            raise
        status = exchange.answer.status
        failed = status >= 500
        known.requests += 1
        known.errors += failed
        if is_fault(status):
            known.note_fault(f"It answered {status}.", time.monotonic())
        else:
            known.note_answer(time.monotonic())
        counters.complete(time.monotonic() - began, failed=failed)
        return response

    async def _replica(self, request: web.BaseRequest, pool: Pool, token: str, tried: list[str]) -> Known | None:
        """Return a replica, counted as open: a free replica at once, else after a wait in the queue. None if all free
        replicas were tried. Raises Refused.
        """
        endpoint, counters = pool.endpoint, pool.counters
        was_held = not pool.has_answering
        if was_held:
            await self._hold(request, pool)
        key = request.headers.get(endpoint.affinity, "") if endpoint.affinity else ""
        if (not pool.waiting or tried) and (known := pool.take(tried, key)) is not None:
            return known
        if tried:
            return None
        if pool.waiting >= endpoint.queue and not was_held:  # held requests have waited already
            message = f"All replicas are busy, and at most {endpoint.queue} requests may wait. Try again in a moment."
            raise Refused(503, "queue-full", message, retry_after=_usual_wait(pool))
        try:
            with counters.queued.one_more():
                return await pool.wait(token, endpoint.queue_seconds)
        except TimeoutError:
            message = f"No replica had room within {endpoint.queue_seconds:g} s."
            raise Refused(503, "queued-too-long", message, retry_after=_usual_wait(pool)) from None

    async def _hold(self, request: web.BaseRequest, pool: Pool) -> None:
        """Wait until a replica answers, starting one if needed. The body is not read yet. Raises Refused."""
        endpoint = pool.endpoint
        if pool.counters.held.count >= MOST_HELD:
            message = f"The endpoint is starting, and {MOST_HELD} requests wait already."
            raise Refused(503, "too-many-held", message, retry_after=endpoint.usual_start or 10)
        with pool.counters.held.one_more():
            if not endpoint.replicas:
                try:
                    await self._endpoints.wake(pool)
                except DatabaseUnavailable:
                    raise no_wake(can_sleep=endpoint.can_sleep) from None
            try:
                await pool.until_answering(_patience(request, endpoint))
            except (TimeoutError, Blocked) as error:
                endpoint = pool.endpoint
                code, now = ("no-replica", " yet") if isinstance(error, TimeoutError) else ("cannot-start", "")
                message = f"No replica of the endpoint answers{now}. {endpoint.why_none}".rstrip()
                raise Refused(503, code, message, retry_after=endpoint.usual_start or 10) from None

    def _note_broken(self, known: Known, error: Exception) -> None:
        if not _is_away(error):  # an unreachable agent is not the revision's fault
            known.requests += 1
            known.errors += 1
        message = getattr(error, "message", "") or _WORDS.get(type(error), type(error).__name__)
        known.note_fault(str(message)[:300], time.monotonic())
        logger.info("replica %s broke off: %s", known.entry.id, message)


def _last(response: web.Response) -> web.Response:
    response.force_close()
    return response


@contextlib.contextmanager
def _given_back(pool: Pool, known: Known) -> Iterator[None]:
    try:
        yield
    finally:
        pool.give_back(known)


def _is_away(error: Exception) -> bool:
    """Return whether the replica's agent could not be reached. The request has then not reached a replica."""
    return isinstance(error, NoTunnel) and error.code in _AWAY


def _patience(request: web.BaseRequest, endpoint: EndpointEntry) -> float:
    wish = request.headers.get("X-Scale-Up-Timeout", "")
    return min(float(wish), LONGEST_HOLD) if wish.isdecimal() else endpoint.hold_seconds


def _usual_wait(pool: Pool) -> float:
    """Return the seconds until the waiting requests will be served, estimated from the answers so far."""
    counters = pool.counters
    if not counters.completions or not counters.open.count:
        return 5.0
    service = counters.open.seconds / counters.completions
    return pool.waiting * service / counters.open.count
