"""The tus protocol 1.0 (core, creation, expiration, termination): uploads that survive every restart."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import io
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from email.utils import formatdate
from uuid import UUID

from aiohttp import web

from backendai.base.paths import beneath
from backendai.base.paths.beneath import Parts
from backendai.files.entries import uploads
from backendai.files.entries.uploads import Upload
from backendai.files.http.receiving import chunks
from backendai.files.http.serving import TicketedRequest, admit, read_body, taken_name, whole
from backendai.files.limits.quota import Amount, Room
from backendai.files.refusals import Refusal

_VERSION, _EXTENSIONS = "1.0.0", "creation,expiration,termination"
_KIND = "application/offset+octet-stream"
_LARGEST = 2**50
_SYNC_EVERY = 64 * 2**20
_COMMON = {"Tus-Resumable": _VERSION, "Cache-Control": "no-store"}


class Turns:
    """The writer of each upload: a reconnecting client replaces its own lost connection."""

    def __init__(self) -> None:
        self._locks: dict[tuple[UUID, str], tuple[asyncio.Lock, asyncio.Task[object] | None]] = {}

    @asynccontextmanager
    async def turn(self, key: tuple[UUID, str]) -> AsyncIterator[None]:
        """End the upload's current writer, and wait until it has ended."""
        lock, writer = self._locks.get(key, (asyncio.Lock(), None))
        me = asyncio.current_task()
        self._locks[key] = lock, me
        if writer is not None and writer is not me:
            writer.cancel()
        try:
            async with lock:
                yield
        finally:
            if self._locks.get(key, (lock, None))[1] is me:
                self._locks.pop(key, None)


TURNS: web.AppKey[Turns] = web.AppKey("turns", Turns)


def add_routes(router: web.UrlDispatcher) -> None:
    folder = "/v1/folders/{folder}/uploads"
    router.add_options(folder, describe)
    router.add_post(folder, create)
    router.add_head(f"{folder}/{{upload}}", show)
    router.add_post(f"{folder}/{{upload}}", settle)
    router.add_patch(f"{folder}/{{upload}}", go_on)
    router.add_delete(f"{folder}/{{upload}}", remove)


async def describe(request: web.Request) -> web.Response:
    """Return the protocol's version and extensions."""
    told = {"Tus-Version": _VERSION, "Tus-Extension": _EXTENSIONS, "Tus-Max-Size": str(_LARGEST)}
    return web.Response(status=204, headers={**_COMMON, **told})


async def create(request: web.Request) -> web.Response:
    """Create an upload; an empty one is completed at once."""
    asked = _admit(request)
    length = whole(request.headers.get("Upload-Length"), "Upload-Length", -1, least=0, most=_LARGEST)
    if length < 0:
        raise Refusal(422, "bad-value", "Upload-Length is missing; uploads of an unknown length are not supported.")
    parts, taken = _read_metadata(request.headers.get("Upload-Metadata", ""))
    async with asked.room(Amount(length, uploads.ENTRIES), replaced=parts if taken["overwrite"] else None):
        upload = await asked.run(uploads.create, parts, length, **taken)
    await _finish(asked, upload)  # an empty one
    location = f"{request.rel_url.path}/{upload.id}"
    return web.Response(status=201, headers={**_COMMON, "Location": location, **_expires(asked)})


async def show(request: web.Request) -> web.Response:
    """Return the number of saved bytes; moves a complete file to its path."""
    asked = _admit(request)
    # A client that asks has lost its writing connection, even if the server has not noticed it yet.
    async with request.app[TURNS].turn((asked.folder_id, request.match_info["upload"])):
        upload = await asked.run(uploads.find, request.match_info["upload"])
        await _finish(asked, upload)
    return _state_of(asked, upload)


async def settle(request: web.Request) -> web.Response:
    """Save what happens with a taken name, which may have refused the last part; moves a complete file to its path."""
    asked, upload_id, taken = _admit(request), request.match_info["upload"], taken_name(await read_body(request))
    async with request.app[TURNS].turn((asked.folder_id, upload_id)):
        upload = await asked.run(uploads.settle, upload_id, **taken)
        await _finish(asked, upload)
    return _state_of(asked, upload)


async def go_on(request: web.Request) -> web.Response:
    """Append bytes, and move a complete file to its path."""
    asked, upload_id = _admit(request), request.match_info["upload"]
    if request.content_type != _KIND:
        raise Refusal(415, "bad-type", f"The Content-Type of a part is {_KIND}.")
    offset = whole(request.headers.get("Upload-Offset"), "Upload-Offset", -1, least=0, most=_LARGEST)
    async with request.app[TURNS].turn((asked.folder_id, upload_id)):
        upload, file = await asked.run(uploads.open_at, upload_id, offset)
        if file is None:
            await _refuse_more(request, upload)
        else:
            with file:
                upload = await _take_in(asked, request, upload, file)
        await _finish(asked, upload)
    return web.Response(status=204, headers={**_COMMON, "Upload-Offset": str(upload.offset), **_expires(asked)})


async def remove(request: web.Request) -> web.Response:
    """Cancel an upload."""
    asked, upload_id = _admit(request), request.match_info["upload"]
    async with request.app[TURNS].turn((asked.folder_id, upload_id)):
        await asked.run(uploads.remove, upload_id)
    asked.wrote()  # the folder is measured again: the removed bytes count no longer
    return web.Response(status=204, headers=_COMMON)


async def _finish(asked: TicketedRequest, upload: Upload) -> None:
    """Move the file of a complete upload to its path, if a crash or a refusal prevented that.

    Clients send no further request, as they take a complete offset for success.
    """
    if upload.offset == upload.length:
        asked.wrote(freed=await asked.run(uploads.finish, upload, now=asked.now))


def _state_of(asked: TicketedRequest, upload: Upload) -> web.Response:
    told = {"Upload-Offset": str(upload.offset), "Upload-Length": str(upload.length)}
    return web.Response(headers={**_COMMON, **told, **_expires(asked)})


async def _take_in(asked: TicketedRequest, request: web.Request, upload: Upload, file: io.FileIO) -> Upload:
    """Append a request's body to an upload; bytes received before a broken connection are kept."""
    replaced = upload.parts if upload.overwrite else None
    async with asked.room(Amount(upload.length - upload.offset), replaced=replaced) as room:
        return await _write(asked, request, upload, file, room)


async def _refuse_more(request: web.Request, upload: Upload) -> None:
    """Reject bytes beyond the announced length."""
    async for _ in chunks(request.content):
        raise _too_large(upload)


async def _write(asked: TicketedRequest, request: web.Request, upload: Upload, file: io.FileIO, room: Room) -> Upload:
    at, synced = upload.offset, upload.offset
    try:
        async for data in chunks(request.content):
            if at + len(data) > upload.length:
                raise _too_large(upload)
            await asked.host.run(uploads.write, file, data)
            room.wrote(len(data))
            at += len(data)
            if at - synced >= _SYNC_EVERY:
                upload, synced = await asked.run(uploads.sync, upload, file, at), at
    finally:
        if at > synced:
            with contextlib.suppress(Refusal, OSError):
                upload = await asked.run(uploads.sync, upload, file, at)
    if upload.offset != at:
        raise Refusal(503, "storage-fault", "The bytes could not be made safe. Go on from the offset that HEAD tells.")
    return upload


def _too_large(upload: Upload) -> Refusal:
    return Refusal(413, "too-large", f"More than the {upload.length} bytes that were announced have come.")


def _admit(request: web.Request) -> TicketedRequest:
    if request.headers.get("Tus-Resumable") != _VERSION:
        raise Refusal(412, "bad-version", f"Send Tus-Resumable: {_VERSION}.")
    return admit(request, "edit")


def _read_metadata(told: str) -> tuple[Parts, dict[str, bool]]:
    """Return the path from ``Upload-Metadata`` (names and base64 values, separated by commas), and what happens if it
    is taken."""
    values: dict[str, bytes] = {}
    for pair in filter(None, (pair.strip() for pair in told.split(","))):
        name, _, value = pair.partition(" ")
        try:
            values[name] = base64.b64decode(value, validate=True)
        except ValueError as error:
            raise Refusal(422, "bad-value", "Upload-Metadata is not names with values in base64.") from error
    if "path" not in values:
        raise Refusal(422, "bad-value", "Upload-Metadata has no path.")
    texts = {name: value.decode(errors="replace") for name, value in values.items()}
    return beneath.parse(values["path"]), taken_name(texts)


def _expires(asked: TicketedRequest) -> dict[str, str]:
    return {"Upload-Expires": formatdate(asked.now + uploads.KEPT_SECONDS, usegmt=True)}
