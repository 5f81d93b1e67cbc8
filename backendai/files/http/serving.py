"""The common part of all requests: ticket, host, folder, and errors as JSON."""

from __future__ import annotations

import asyncio
import json
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Concatenate, ParamSpec, TypeVar
from uuid import UUID

import jwt
from aiohttp import web

from backendai.base.paths import beneath
from backendai.base.paths.beneath import Parts
from backendai.base.paths.path_texts import RAW, bytes_of, decode_raw
from backendai.base.wire.folder_tickets import FolderTicket, FolderTicketRefused, TicketRights, read_folder_ticket
from backendai.files.config import FilesSettings
from backendai.files.entries.content import freed_by
from backendai.files.entries.tree import FolderTree, opened_folder, read_size
from backendai.files.folders.progress import Stopped
from backendai.files.hosts import VISITOR, Host
from backendai.files.limits.quota import NOTHING, Amount, Held, Ledger, Room
from backendai.files.refusals import Refusal, as_refusal

P = ParamSpec("P")
T = TypeVar("T")
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]

logger = logging.getLogger(__name__)
HOST_ITSELF = UUID(int=0)  # the folder id in tickets for a storage host itself
_TRUE, _FALSE = ("1", "true"), ("", "0", "false")


@dataclass(slots=True)
class Server:
    """The state that all requests share."""

    settings: FilesSettings
    hosts: Mapping[str, Host]
    ledger: Ledger = field(default_factory=Ledger)
    clock: Callable[[], float] = time.time
    started_at: float = field(default_factory=time.time)
    measure: Callable[[Host, UUID], None] = lambda host, folder_id: None
    measure_soon: Callable[[Host, UUID], None] = lambda host, folder_id: None
    settled_after: float = 2.0  # seconds between a change and the folder's measurement
    tasks: set[asyncio.Task[Any]] = field(default_factory=set)

    def later(self, work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        """Start background work that outlives the response; logs its errors, except refusals."""
        task = asyncio.create_task(work)
        self.tasks.add(task)
        task.add_done_callback(self._forget)
        return task

    def _forget(self, task: asyncio.Task[Any]) -> None:
        self.tasks.discard(task)
        if task.cancelled() or (error := task.exception()) is None or isinstance(error, Stopped):
            return
        if not isinstance(error, Exception) or as_refusal(error) is None:
            logger.error("work in the background has failed: %s", error, exc_info=error)

    @property
    def linkable(self) -> Sequence[Path]:
        """The paths below which existing directories can become folders."""
        return self.settings.linkable


SERVER: web.AppKey[Server] = web.AppKey("server", Server)
ANSWER_STARTED: web.RequestKey[bool] = web.RequestKey("started", bool)  # the response has started


@dataclass(frozen=True, slots=True)
class TicketedRequest:
    """A request with a valid ticket for a folder of a host."""

    server: Server
    host: Host
    ticket: FolderTicket

    @property
    def folder_id(self) -> UUID:
        """The id of the ticket's folder."""
        return self.ticket.folder_id

    @property
    def now(self) -> float:
        """The server's time in epoch seconds."""
        return self.server.clock()

    async def run(self, work: Callable[Concatenate[FolderTree, P], T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Call ``work(tree, …)`` with the open folder, in a thread of its host."""
        return await self.host.run(in_folder, self.folder_id, self.server.linkable, _bound(work, *args, **kwargs))

    async def run_long(self, work: Callable[Concatenate[FolderTree, P], T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Like ``run``, for work that may take seconds."""
        return await self.host.run_long(in_folder, self.folder_id, self.server.linkable, _bound(work, *args, **kwargs))

    async def run_in_background(
        self, kind: str, work: Callable[Concatenate[FolderTree, P], T], *args: P.args, **kwargs: P.kwargs
    ) -> T:
        """Like ``run``, for work that no request waits for. ``kind``: see ``hosts.BACKGROUND``."""
        bound = _bound(work, *args, **kwargs)
        return await self.host.run_in_background(kind, in_folder, self.folder_id, self.server.linkable, bound)

    def wrote(self, count: int = 0, *, freed: Amount = NOTHING) -> None:
        """Count written bytes and what was freed, and schedule a measurement of the folder."""
        self.server.ledger.add(self.folder_id, Amount(count))
        self.server.ledger.forget(self.folder_id, freed)
        self.server.measure_soon(self.host, self.folder_id)

    @asynccontextmanager
    async def room(self, amount: Amount, *, replaced: Parts | None = None) -> AsyncIterator[Room]:
        """Reserve an amount during the context, then schedule a measurement. Refuses with 507 if it exceeds the
        folder's limits, together with other reservations. ``replaced``: a path whose file the writer replaces."""
        held = await self.run(read_limit, replaced)
        if held.meta.limit is not None and held.size is not None and held.size.at < self.server.started_at:
            self.server.measure(self.host, self.folder_id)  # later writes of an earlier server are unknown
        with self.server.ledger.room(self.folder_id, held, amount) as room:
            try:
                yield room
            finally:
                self.server.measure_soon(self.host, self.folder_id)

    async def add_room(self, room: Room, count: int, *, replaced: Parts | None) -> None:
        """Reserve more bytes, based on the newest measurement. Refuses with 507."""
        room.look_again(await self.run(read_limit, replaced))
        room.add(Amount(count))


def in_folder(root: int, folder_id: UUID, linkable: Sequence[Path], work: Callable[[FolderTree], T]) -> T:
    """Return the result of ``work`` with the open folder. Refuses with 404 if the folder is missing."""
    with opened_folder(root, folder_id, linkable) as tree:
        return work(tree)


def read_limit(tree: FolderTree, replaced: Parts | None) -> Held:
    """Return what a limit's check needs: meta, last measurement, and what the file at a path frees."""
    freed = NOTHING
    if replaced:
        with suppress(OSError), beneath.parent_of(tree.data, beneath.followed(tree.data, replaced)) as (parent, name):
            freed = freed_by(parent, name)
    return Held(tree.meta, read_size(tree.base), freed)


def admit(request: web.Request, rights: TicketRights) -> TicketedRequest:
    """Return the request's folder and host. Refuses with 401 without a valid ticket, and with 403 if the ticket lacks
    the rights or names another folder."""
    server = request.app[SERVER]
    kind, _, token = request.headers.get("Authorization", "").partition(" ")
    if kind.lower() != "bearer" or not token:
        raise Refusal(401, "ticket-refused", "A ticket of the portal is needed.")
    try:
        key, _ = server.settings.keys()
        host = server.hosts.get(_host_named(token))
        if host is None:
            raise FolderTicketRefused("The ticket is for a storage host that is not served here.")
        ticket = read_folder_ticket(key, token, host=host.name, now=server.clock())
    except FolderTicketRefused as error:
        raise Refusal(401, error.code, error.message) from error
    if ticket.folder_id != _folder_named(request):
        raise Refusal(403, "not-allowed", "The ticket is for another folder.")
    if not ticket.allows(rights):
        raise Refusal(403, "not-allowed", f"This needs the right to {rights}; you have the right to {ticket.rights}.")
    VISITOR.set(ticket.account or ("" if ticket.allows("manage") else str(ticket.folder_id)))  # "": the portal itself
    return TicketedRequest(server, host, ticket)


def query_path(request: web.Request) -> Parts:
    """Return the path in the query."""
    return _path(request.query.get("path"), request.query.get("raw_path"))


def query_paths(request: web.Request) -> list[Parts]:
    """Return all paths in the query; the folder itself if there are none."""
    told = [_path(path, None) for path in request.query.getall("path", [])]
    told += [beneath.parse(decode_raw(raw)) for raw in request.query.getall("raw_path", [])]
    return told or [()]


def body_path(body: Mapping[str, Any], name: str = "path") -> Parts:
    """Return a path in the body, given as text or in base64url as ``raw_…``."""
    return _path(body.get(name), body.get(f"raw_{name}"))


def listed_path(item: object) -> Parts:
    """Return a path from a list item: text, or {"raw": …} in base64url."""
    if isinstance(item, dict):
        return _path(None, item.get("raw"))
    return _path(item, None)


def switch(told: object, name: str) -> bool:
    """Return whether an option is on. Refuses other values than 1 and 0."""
    if isinstance(told, bool):
        return told
    if str(told or "").lower() in (*_TRUE, *_FALSE):
        return str(told or "").lower() in _TRUE
    raise Refusal(422, "bad-value", f"{name} is {told!r}: use 1 or 0.")


def taken_name(told: Mapping[str, Any]) -> dict[str, bool]:
    """Return what happens with a taken name: ``overwrite`` replaces the entry, ``keep_both`` numbers the new name."""
    asked = {name: switch(told.get(name), name) for name in ("overwrite", "keep_both")}
    if all(asked.values()):
        raise Refusal(422, "bad-value", "overwrite and keep_both exclude each other: set one of them.")
    return asked


def whole(told: str | None, name: str, default: int, *, least: int, most: int) -> int:
    """Return a whole number. Refuses one outside the limits."""
    if told is None or told == "":
        return default
    if not told.isascii() or not told.isdigit() or not least <= int(told[:20]) <= most:
        raise Refusal(422, "bad-value", f"{name} is {told[:40]!r}: use a whole number from {least} to {most}.")
    return int(told)


async def read_body(request: web.Request) -> dict[str, Any]:
    """Return the JSON object in the body; an empty body is an empty object."""
    content = await request.read()
    try:
        body = json.loads(content) if content else {}
    except (ValueError, RecursionError) as error:
        raise Refusal(422, "bad-body", "The body is not JSON.") from error
    if not isinstance(body, dict):
        raise Refusal(422, "bad-body", "The body is not a JSON object.")
    return body


@web.middleware
async def errors_as_json(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Return every error as {"code", "message", …}; logs unexpected ones."""
    try:
        return await handler(request)
    except web.HTTPException as error:
        if error.status < 400:
            raise
        return refuse(Refusal(error.status, (error.reason or "error").lower().replace(" ", "-"), error.text or ""))
    except ConnectionError:
        raise  # the client disconnected
    except Exception as error:
        if (refusal := as_refusal(error)) is None:
            logger.exception("%s %s failed", request.method, request.path)
            refusal = Refusal(500, "platform-error", "The file server has failed here; its log says more.")
        if request.get(ANSWER_STARTED):
            raise ConnectionAbortedError(refusal.message) from error  # the status is sent already
        return refuse(refusal)


def refuse(refusal: Refusal) -> web.Response:
    """Return a refusal as a response."""
    told = {"code": refusal.code, "message": refusal.message, **refusal.details}
    response = web.json_response(told, status=refusal.status)
    if refusal.status == 503:
        response.headers["Retry-After"] = "5"
    return response


def _bound(work: Callable[Concatenate[FolderTree, P], T], *args: P.args, **kwargs: P.kwargs) -> Callable[..., T]:
    return lambda tree: work(tree, *args, **kwargs)


def _path(text: object, raw: object) -> Parts:
    if raw is not None:
        return beneath.parse(decode_raw(str(raw)))
    if text is not None and not isinstance(text, str):
        raise beneath.PathRefused("A path is a text.", field="path")
    return beneath.parse(bytes_of(text) if text and text.startswith(RAW) else text or "")


def _host_named(token: str) -> str:
    """Return the host in a ticket, unverified; the caller then verifies the ticket for this host."""
    try:
        return str(jwt.decode(token, options={"verify_signature": False})["host"])
    except (jwt.PyJWTError, KeyError, ValueError, TypeError) as error:
        raise FolderTicketRefused("The ticket is not valid.") from error


def _folder_named(request: web.Request) -> UUID:
    if (told := request.match_info.get("folder")) is None:
        return HOST_ITSELF
    try:
        return UUID(told)
    except ValueError as error:
        raise Refusal(404, "no-folder", "A folder is named by its id.") from error
