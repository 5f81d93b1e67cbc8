"""What an app proxy counts for its metrics."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from http import HTTPStatus

from aiohttp import web
from prometheus_client import CollectorRegistry, Counter, Gauge

KIND = web.RequestKey("what was asked for", str)
OTHER, APP, FILES, ENDPOINT = "other", "app", "files", "endpoint"
_NO_ANSWER = 499  # the visitor has left

registry = CollectorRegistry()
connections = Gauge("backendai_proxy_connections", "Open connections of visitors.", registry=registry)
_requests = Counter(
    "backendai_proxy_requests",
    "Requests by what they asked for and the class of the answer's status; websockets count at their end.",
    ("kind", "status"),
    registry=registry,
)
_bytes = Counter(
    "backendai_proxy_bytes",
    "Bytes of bodies and websockets, received from visitors and sent to them.",
    ("kind", "direction"),
    registry=registry,
)


@dataclass
class Outcome:
    """What a request was answered with; None: nothing yet."""

    response: web.StreamResponse | None = None


@contextmanager
def counting(request: web.BaseRequest) -> Iterator[Outcome]:
    """Count a request at the end of the context, with the bytes of its bodies."""
    outcome, status = Outcome(), _NO_ANSWER
    try:
        yield outcome
        status = outcome.response.status if outcome.response is not None else _NO_ANSWER
    except web.HTTPException as error:
        status = error.status
        raise
    except Exception:
        status = HTTPStatus.INTERNAL_SERVER_ERROR
        raise
    finally:
        _counter(request.get(KIND, OTHER), status // 100).inc()
        received, sent = bytes_of(request)
        received(request.content.total_bytes)
        sent(outcome.response.body_length if outcome.response is not None else 0)


def bytes_of(request: web.BaseRequest) -> tuple[Callable[[float], None], Callable[[float], None]]:
    """Return the functions that count bytes of a request: received from its visitor, and sent to them."""
    return _of_bytes(request.get(KIND, OTHER))


@lru_cache
def _counter(kind: str, hundreds: int) -> Counter:
    return _requests.labels(kind, f"{hundreds}xx")


@lru_cache
def _of_bytes(kind: str) -> tuple[Callable[[float], None], Callable[[float], None]]:
    return _bytes.labels(kind, "received").inc, _bytes.labels(kind, "sent").inc
