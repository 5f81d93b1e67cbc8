"""Runs operations on folders that may outlast their request, and reports their progress."""

from __future__ import annotations

import asyncio
import time
import uuid
from collections.abc import Callable, Coroutine
from dataclasses import asdict, dataclass
from typing import Any
from uuid import UUID

from aiohttp import web

from backendai.files.folders.progress import Progress, Stopped
from backendai.files.http.serving import TicketedRequest, admit
from backendai.files.refusals import Refusal, StorageSilent, as_refusal

ANSWERED_WITHIN = 2.0  # seconds; the portal's timeout is 3
_KEPT_SECONDS, _MOST_UNDER_WAY = 600.0, 1000
Result = tuple[int, dict[str, Any]]  # HTTP status and body
Work = Callable[[Progress], Coroutine[Any, Any, Result]]


@dataclass(slots=True)
class Operation:
    """One operation on a folder."""

    id: str
    folder_id: UUID
    progress: Progress
    task: asyncio.Task[Result]
    ended_at: float | None = None


class Operations:
    """The operations of this server. They end with the server and are not saved."""

    def __init__(self) -> None:
        self._known: dict[str, Operation] = {}

    def begin(self, asked: TicketedRequest, work: Work) -> Operation:
        """Start an operation and return it. Raises a Refusal if very many are running."""
        self._forget_old()
        if sum(one.ended_at is None for one in self._known.values()) >= _MOST_UNDER_WAY:
            raise Refusal(503, "too-many-operations", f"{_MOST_UNDER_WAY} operations are under way. Try again later.")
        progress = Progress()
        task = asked.server.later(work(progress))
        operation = Operation(uuid.uuid4().hex, asked.folder_id, progress, task)
        self._known[operation.id] = operation
        task.add_done_callback(lambda _: setattr(operation, "ended_at", time.monotonic()))
        return operation

    def find(self, folder_id: UUID, operation_id: str) -> Operation:
        """Return an operation on a folder. Refuses an unknown one with 404."""
        operation = self._known.get(operation_id)
        if operation is None or operation.folder_id != folder_id:
            message = "Operation not found: it ended long ago, or the file server was restarted. Check the folder."
            raise Refusal(404, "no-operation", message)
        return operation

    def forget(self, operation: Operation) -> None:
        """Delete an operation whose result was returned."""
        self._known.pop(operation.id, None)

    def _forget_old(self) -> None:
        before = time.monotonic() - _KEPT_SECONDS
        old = [one.id for one in self._known.values() if one.ended_at is not None and one.ended_at < before]
        for operation_id in old:
            del self._known[operation_id]


OPERATIONS: web.AppKey[Operations] = web.AppKey("operations", Operations)


def add_routes(router: web.UrlDispatcher) -> None:
    """Add the routes of this module."""
    one = "/v1/folders/{folder}/operations/{operation}"
    router.add_get(one, show)
    router.add_delete(one, stop)


async def carry_out(request: web.Request, asked: TicketedRequest, work: Work) -> web.Response:
    """Run the work and return its result; after 2 s, return 202 with its progress instead."""
    if asked.host.silent:
        raise StorageSilent(asked.host.name)
    operation = request.app[OPERATIONS].begin(asked, work)
    await asyncio.wait([operation.task], timeout=ANSWERED_WITHIN)
    if not operation.task.done():
        return web.json_response(_shown(operation), status=202)
    request.app[OPERATIONS].forget(operation)
    try:
        status, body = operation.task.result()
    except Stopped as error:
        raise Refusal(409, "stopped", "The operation was stopped.") from error
    return web.json_response(body, status=status)


async def show(request: web.Request) -> web.Response:
    """Return an operation's progress or result. Waits up to 2 s for its end."""
    asked = admit(request, "edit")
    operation = request.app[OPERATIONS].find(asked.folder_id, request.match_info["operation"])
    await asyncio.wait([operation.task], timeout=ANSWERED_WITHIN)
    return web.json_response(_shown(operation))


async def stop(request: web.Request) -> web.Response:
    """Stop an operation. Changes that it has made stay; an unfinished copy is deleted."""
    asked = admit(request, "edit")
    operation = request.app[OPERATIONS].find(asked.folder_id, request.match_info["operation"])
    operation.progress.stopped.set()
    await asyncio.wait([operation.task], timeout=ANSWERED_WITHIN)
    return web.json_response(_shown(operation))


def _shown(operation: Operation) -> dict[str, Any]:
    told = {"operation": operation.id, "progress": asdict(operation.progress.shown())}
    if not operation.task.done():
        return {**told, "state": "running"}
    if operation.task.cancelled():
        return {**told, "state": "stopped"}
    error = operation.task.exception()
    if error is None:
        return {**told, "state": "done", "result": operation.task.result()[1]}
    if isinstance(error, Stopped):
        return {**told, "state": "stopped"}
    refusal = as_refusal(error) if isinstance(error, Exception) else None
    if refusal is None:
        refusal = Refusal(500, "platform-error", "The file server has failed here; its log says more.")
    problem = {"status": refusal.status, "code": refusal.code, "message": refusal.message, **refusal.details}
    return {**told, "state": "failed", "error": problem}
