"""Decides which failed requests may be retried on a second replica.

A request is retried once, and only if executing it twice does no harm.
"""

from __future__ import annotations

from collections.abc import Callable

from aiohttp import web

from backendai.domain.serving.endpoint_table import EndpointEntry
from backendai.gates.appproxy.endpoints.relay import Body
from backendai.gates.appproxy.relay import wants_websocket
from backendai.gates.gateways.tunnel import NoTunnel

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
