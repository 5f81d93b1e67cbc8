"""Sends requests to the file server of a storage host, with short deadlines and few calls at once.

While a host hangs, calls to it fail at once.
"""

from __future__ import annotations

import json
import logging
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any
from urllib.parse import urlencode
from uuid import UUID

import urllib3
from django.conf import settings

from backendai.base.core.errors import UserError
from backendai.base.core.messages import Message
from backendai.base.wire.folder_tickets import TicketRights, sign_folder_ticket
from backendai.domain.storage.models import StorageHost

logger = logging.getLogger(__name__)

DEADLINE_SECONDS = 3.0
MOST_AT_ONCE = 4  # calls of this process to one host
REFUSED_FOR_SECONDS = 5.0  # after a call that had no answer in time
LARGEST_ANSWER = 8 * 2**20
_CHUNK = 2**16
_UNAUTHORIZED, _SERVER_FAULT, _FULL, _UNAVAILABLE = 401, 500, 507, 503


class FileServerError(UserError):
    """The file server rejected a request. ``status``: its HTTP status; ``code``: the reason."""

    code = "storage-refused"

    def __init__(self, message: str, *, status: int, code: str | None = None, **details: Any) -> None:
        super().__init__(message, code=code, **details)
        self.status = status


class StorageSilent(FileServerError):
    """The file server cannot be used now: it does not answer, its storage is missing, or it failed. Try again later."""

    code = "storage-silent"

    def __init__(self, message: str, *, code: str | None = None, **details: Any) -> None:
        super().__init__(message, status=_UNAVAILABLE, code=code, **details)


class StorageLine:
    """The calls of this process to one address, with their limits."""

    def __init__(self) -> None:
        self._slots = threading.BoundedSemaphore(MOST_AT_ONCE)
        self.silent_until = 0.0  # by the monotonic clock
        self.answered_at = 0.0

    def gave_no_answer(self, since: float) -> None:
        """Reject calls for a while. Not if another call was answered since ``since``: the server was then only slow."""
        if self.answered_at < since:
            self.silent_until = time.monotonic() + REFUSED_FOR_SECONDS

    @contextmanager
    def slot(self, host: str) -> Iterator[None]:
        """Take part in the calls; raises StorageSilent at once while the host hangs or too many calls wait for it."""
        if time.monotonic() < self.silent_until:
            raise StorageSilent(Message("Storage host {host} does not answer. Try again in a few seconds.", host=host))
        if not self._slots.acquire(timeout=DEADLINE_SECONDS / 10):
            raise StorageSilent(
                Message(
                    "Storage host {host} is busy: {most_at_once} requests wait for it.",
                    host=host,
                    most_at_once=MOST_AT_ONCE,
                ),
                code="storage-busy",
            )
        try:
            yield
        finally:
            self._slots.release()


_lines: dict[str, StorageLine] = {}
_lines_lock = threading.Lock()
_pool = urllib3.PoolManager(num_pools=32, maxsize=MOST_AT_ONCE, retries=urllib3.Retry(0, redirect=False))


def line_to(address: str) -> StorageLine:
    """Return the limits of calls that all clients of this address in this process share."""
    with _lines_lock:
        return _lines.setdefault(address, StorageLine())


class FileServerClient:
    """Calls to the file server of one storage host."""

    def __init__(self, host: StorageHost) -> None:
        self.host = host
        self._line = line_to(host.address)

    def call(
        self,
        method: str,
        path: str,
        *,
        folder_id: UUID,
        version: int,
        rights: TicketRights,
        account: str = "",
        query: Mapping[str, Any] | None = None,
        body: Mapping[str, Any] | None = None,
    ) -> dict[str, Any]:
        """Send a request and return the parsed answer; empty if it has no body. Raises FileServerError for an error
        answer, StorageSilent after ``DEADLINE_SECONDS``."""
        ticket = sign_folder_ticket(
            settings.TICKET_KEY,
            host=self.host.name,
            folder_id=folder_id,
            version=version,
            rights=rights,
            now=time.time(),
            account=account,
        )
        headers = {"Authorization": f"Bearer {ticket}", "Content-Type": "application/json"}
        content = None if body is None else json.dumps(body).encode()
        with self._line.slot(self.host.name):
            status, answer = self._ask(method, path, headers, query, content)
        return self._read(status, answer, f"{method} {path}")

    def _ask(
        self, method: str, path: str, headers: Mapping[str, str], query: Mapping[str, Any] | None, content: bytes | None
    ) -> tuple[int, bytes]:
        began = time.monotonic()
        url = self.host.address.rstrip("/") + path
        if query:
            url += "?" + urlencode({name: value for name, value in query.items() if value is not None}, doseq=True)
        try:
            answer = _pool.request(
                method,
                url,
                body=content,
                headers=headers,
                preload_content=False,
                timeout=urllib3.Timeout(total=DEADLINE_SECONDS),
            )
            try:
                self._line.answered_at = time.monotonic()
                return answer.status, _content(answer, began + DEADLINE_SECONDS)
            finally:
                answer.close()
        except urllib3.exceptions.HTTPError as error:
            if not isinstance(error.__cause__ or error, urllib3.exceptions.NewConnectionError):
                self._line.gave_no_answer(since=began)
            logger.warning("storage host %s: %s %s: %s", self.host.name, method, path, error)
            text = Message("Storage host {host} does not answer. Try again in a few seconds.", host=self.host.name)
            raise StorageSilent(text) from error

    def _read(self, status: int, content: bytes, asked: str) -> dict[str, Any]:
        try:
            answer = json.loads(content) if content else {}
        except ValueError:
            answer = None
        if not isinstance(answer, dict):
            logger.error("storage host %s answered %s with %d and %r", self.host.name, asked, status, content[:200])
            raise StorageSilent(
                Message("Storage host {host} gave an invalid answer.", host=self.host.name),
                code="storage-fault",
            )
        if status < 400:
            return answer
        message = str(answer.get("message") or Message("The file server answered {status}.", status=status))[:500]
        code = str(answer.get("code") or "storage-refused")[:64]
        if status == _UNAUTHORIZED or (status >= _SERVER_FAULT and status != _FULL):
            logger.error("storage host %s answered %s with %d: %s %s", self.host.name, asked, status, code, message)
            raise StorageSilent(
                Message("Storage host {host}: {message}", host=self.host.name, message=message), code=code
            )
        details = {name: value for name, value in answer.items() if name not in ("code", "message")}
        raise FileServerError(message, status=status, code=code, **details)


def _content(answer: urllib3.BaseHTTPResponse, until: float) -> bytes:
    """Return the body; raises an HTTPError when it is too large or comes too slowly."""
    parts, size = [], 0
    for part in answer.stream(_CHUNK):
        parts.append(part)
        size += len(part)
        if size > LARGEST_ANSWER or time.monotonic() > until:
            raise urllib3.exceptions.HTTPError(f"{size} bytes in {DEADLINE_SECONDS} s")
    return b"".join(parts)
