"""Requests to a Kubernetes API server, with deadlines, retries for a busy server, and BackendError.

urllib3 makes the requests, aiohttp the streams (see ``streams``). The official client reads terminals as
text, and has classes for a thousand kinds of objects, five of which are used here.
"""

from __future__ import annotations

import json
import random
import threading
import time
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from http import HTTPStatus
from typing import Any
from urllib.parse import quote, urlencode

import urllib3

from backendai.agent.backends.base import BackendError
from backendai.agent.backends.kubernetes.api.access import ApiAccess

UNREACHABLE = "engine-unreachable"
CALL_SECONDS = 30.0
_CONNECT_SECONDS = 5.0
_BUSY = (429, 503)
_BUSY_TRIES = 4
_LONGEST_PAUSE = 10.0
_CONNECTIONS = 16
JSON_PATCH = "application/json-patch+json"
MERGE_PATCH = "application/merge-patch+json"


class ApiError(BackendError):
    """The API server refused. ``status``: of HTTP. ``reason``: Kubernetes' word for it."""

    def __init__(self, status: int, reason: str, message: str) -> None:
        super().__init__("The Kubernetes API refused: {message}", message=message or f"{status} {reason}")
        self.status, self.reason, self.words = status, reason, message


class Api:
    """One namespace of an API server. Thread-safe. ``requests`` counts the requests."""

    def __init__(self, access: ApiAccess, namespace: str) -> None:
        self.access, self.namespace, self.requests = access, namespace, 0
        self._pool = urllib3.PoolManager(
            num_pools=2,
            maxsize=_CONNECTIONS,
            ssl_context=access.context,
            retries=False,
            assert_hostname=None if access.context is None or access.context.check_hostname else False,
        )
        self._counting = threading.Lock()

    def path(self, kind: str, name: str = "", *more: str, group: str = "") -> str:
        """Return the API path of a kind of objects in the namespace, or of one object."""
        root = f"/apis/{group}" if group else "/api/v1"
        parts = ("namespaces", self.namespace, kind, *([name] if name else []), *more)
        return "/".join([root, *(quote(part, safe="") for part in parts)])

    def ask(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        query: Mapping[str, Any] | None = None,
        content: str = "application/json",
        seconds: float = CALL_SECONDS,
    ) -> dict[str, Any]:
        """Return the answer. Retries after the pause that a busy server (429, 503) names. Raises ApiError, and
        BackendError (``engine-unreachable``) without an answer; the request may have been executed."""
        deadline = time.monotonic() + seconds
        for tries in range(1, _BUSY_TRIES + 1):
            response = self._send(method, path, body, query, content, max(deadline - time.monotonic(), 1.0))
            if response.status not in _BUSY or tries == _BUSY_TRIES:
                break
            pause = min(_pause_of(response, tries), _LONGEST_PAUSE)
            if time.monotonic() + pause >= deadline:
                break
            time.sleep(pause)
        return _answer(response)

    def delete(
        self, kind: str, name: str, body: Any = None, *, group: str = "", but: Collection[int] = (HTTPStatus.NOT_FOUND,)
    ) -> None:
        """Delete an object; does nothing if it is gone. ``but``: answers that are no errors. Raises like ``ask``."""
        try:
            self.ask("DELETE", self.path(kind, name, group=group), body)
        except ApiError as error:
            if error.status not in but:
                raise

    @contextmanager
    def lines(self, path: str, query: Mapping[str, Any], *, silence: float) -> Iterator[Iterator[dict[str, Any]]]:
        """Yield a watch's objects as they arrive; ends with the stream, or after ``silence`` seconds without any.
        Raises like ``ask`` at the beginning only."""
        response = self._send("GET", path, None, query, "application/json", CALL_SECONDS, silence=silence)
        try:
            if response.status >= 300:
                _answer(response)
            yield _objects(response)
        finally:
            response.close()

    def text(self, path: str, query: Mapping[str, Any]) -> bytes:
        """Return an answer that is not JSON. Raises like ``ask``."""
        response = self._send("GET", path, None, query, "application/json", CALL_SECONDS)
        try:
            data: bytes = response.read()
        except (urllib3.exceptions.HTTPError, OSError) as error:
            raise silent(error) from error
        finally:
            response.release_conn()
        if response.status >= 300:
            raise _refusal(response.status, data)
        return data

    def address(self, path: str, query: list[tuple[str, str]]) -> str:
        """Return the complete URL of a stream."""
        return f"{self.access.server}{path}?{urlencode(query)}"

    def count(self) -> None:
        """Count a request."""
        with self._counting:
            self.requests += 1

    def close(self) -> None:
        """Close the unused connections."""
        self._pool.clear()

    def _send(
        self,
        method: str,
        path: str,
        body: Any,
        query: Mapping[str, Any] | None,
        content: str,
        seconds: float,
        *,
        silence: float | None = None,
    ) -> urllib3.BaseHTTPResponse:
        self.count()
        address = f"{self.access.server}{path}" + (f"?{urlencode(query)}" if query else "")
        headers = {"Accept": "application/json", **self.access.headers()}
        if body is not None:
            headers["Content-Type"] = content
        try:
            return self._pool.request(
                method,
                address,
                body=None if body is None else json.dumps(body),
                headers=headers,
                preload_content=False,
                timeout=urllib3.Timeout(connect=_CONNECT_SECONDS, read=silence or seconds),
            )
        except (urllib3.exceptions.HTTPError, OSError) as error:
            raise silent(error) from error


def _answer(response: urllib3.BaseHTTPResponse) -> dict[str, Any]:
    try:
        data = response.read()
        if response.status >= 300:
            raise _refusal(response.status, data)
        found: dict[str, Any] = json.loads(data or b"{}")
    except (urllib3.exceptions.HTTPError, OSError, ValueError) as error:
        raise silent(error) from error
    finally:
        response.release_conn()
    return found


def _refusal(status: int, data: bytes) -> BackendError:
    try:
        said = json.loads(data)
        reason, message = str(said.get("reason") or ""), str(said.get("message") or "")
    except (ValueError, AttributeError):
        reason, message = "", data.decode(errors="replace").strip()[:300]
    if status in _BUSY or status >= 500:
        return BackendError(
            "The Kubernetes API is busy ({status}): {message}", status=status, message=message, code=UNREACHABLE
        )
    return ApiError(status, reason, message)


def silent(error: Exception) -> BackendError:
    """Return the error for a server that gives no answer."""
    return BackendError("The Kubernetes API does not answer: {error}", error=str(error)[:300], code=UNREACHABLE)


def _pause_of(response: urllib3.BaseHTTPResponse, tries: int) -> float:
    """Return the pause that the server requests, lengthened at random so that clients do not return together."""
    said = response.headers.get("Retry-After", "")
    response.drain_conn()
    response.release_conn()
    wanted = float(said) if said.isascii() and said.isdigit() else 0.25 * 2**tries
    return wanted * random.uniform(1.0, 1.2)


def _objects(response: urllib3.BaseHTTPResponse) -> Iterator[dict[str, Any]]:
    waiting = b""
    try:
        while piece := response.read1(65536):
            *whole, waiting = (waiting + piece).split(b"\n")
            for line in filter(None, whole):
                yield json.loads(line)
    except (urllib3.exceptions.HTTPError, OSError, ValueError):
        return
