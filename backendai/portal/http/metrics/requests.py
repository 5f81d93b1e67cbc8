"""Counts the requests of a web server. Each of several processes writes files, and a scrape adds them up."""

from __future__ import annotations

import os
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from http import HTTPStatus
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Histogram
from prometheus_client.multiprocess import MultiProcessCollector

from backendai.portal.http.metrics.sharing import FOLDER

Send = Callable[[dict[str, Any]], Awaitable[None]]

_METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})
_NO_ANSWER = 499  # the visitor has left

registry = CollectorRegistry()
_requests = Counter(
    "backendai_http_requests",
    "Requests to the portal by the beginning of their route and the class of the answer's status.",
    ("method", "route", "status"),
    registry=registry,
)
_seconds = Histogram(
    "backendai_http_request_seconds",
    "Time until the answer had left; streams take as long as their reader.",
    ("route",),
    buckets=(0.025, 0.1, 0.25, 1.0, 2.5, 10.0),
    registry=registry,
)


@contextmanager
def counting(method: str, route: str, send: Send) -> Iterator[Send]:
    """Yield the function to answer a request with; count the request at the end."""
    status, began = _NO_ANSWER, time.perf_counter()

    async def watched(message: dict[str, Any]) -> None:
        nonlocal status
        status = message.get("status", status)
        await send(message)

    try:
        yield watched
    except Exception:
        status = HTTPStatus.INTERNAL_SERVER_ERROR if status == _NO_ANSWER else status
        raise
    finally:
        _requests.labels(method if method in _METHODS else "other", route, f"{status // 100}xx").inc()
        _seconds.labels(route).observe(time.perf_counter() - began)


def collect_requests(into: CollectorRegistry) -> None:
    """Register what all processes of this web server have counted."""
    if folder := os.environ.get(FOLDER):
        MultiProcessCollector(into, folder)
    else:
        into.register(registry)
