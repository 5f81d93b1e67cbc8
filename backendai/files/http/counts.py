"""What a file server counts for its metrics."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from aiohttp import web
from prometheus_client import CollectorRegistry, Counter, Gauge

_NO_ANSWER = 499  # the client has left

registry = CollectorRegistry()
_open = Gauge("backendai_files_open_requests", "Requests under way.", registry=registry)
_requests = Counter(
    "backendai_files_requests",
    "Requests by method, the last fixed word of their route, and class of the answer's status.",
    ("method", "route", "status"),
    registry=registry,
)
_bytes = Counter(
    "backendai_files_bytes",
    "Bytes of bodies: received in uploads, sent in downloads.",
    ("direction",),
    registry=registry,
)


@web.middleware
async def count_requests(
    request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]
) -> web.StreamResponse:
    """Count a request at its end, with the bytes of its bodies."""
    resource = request.match_info.route.resource
    words = [word for word in resource.canonical.split("/") if word and "{" not in word] if resource else ["other"]
    status, response = _NO_ANSWER, None
    _open.inc()
    try:
        response = await handler(request)
        status = response.status
        return response
    finally:
        _open.dec()
        _requests.labels(request.method, words[-1], f"{status // 100}xx").inc()
        _bytes.labels("received").inc(request.content.total_bytes)
        _bytes.labels("sent").inc(response.body_length if response is not None else 0)
