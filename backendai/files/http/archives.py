"""Handles requests for archives: download of files as zip or tar, upload of a tar stream."""

from __future__ import annotations

import contextlib
import os
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack
from dataclasses import replace

from aiohttp import web

from backendai.base.paths import beneath, packing
from backendai.base.paths.beneath import Parts
from backendai.base.paths.packing import Tar, Zip
from backendai.base.paths.tree_walk import select
from backendai.files.entries import content, unpacking
from backendai.files.entries.listing import shown
from backendai.files.entries.tar_reading import Member, TarReader
from backendai.files.entries.tree import FolderTree
from backendai.files.entries.unpacking import Item, Outcome
from backendai.files.http.contents import SAFETY, disposition
from backendai.files.http.serving import ANSWER_STARTED, TicketedRequest, admit, query_paths, switch
from backendai.files.limits.quota import NOTHING, Amount
from backendai.files.refusals import Refusal

MOST_IN_ZIP = 200_000
_KEPT_IN_MEMORY = 2**20  # bytes of one member; larger ones are written to disk while they arrive
_BATCH_BYTES, _BATCH_ITEMS = 32 * 2**20, 500
_READABLE, _USUAL_MODES = 0o600, 0o755


def add_routes(router: web.UrlDispatcher) -> None:
    router.add_get("/v1/folders/{folder}/archive", download, allow_head=False)
    router.add_put("/v1/folders/{folder}/archive", upload)


async def download(request: web.Request) -> web.StreamResponse:
    """Return an archive of the files and directories at the given paths. ``pipes``: see ``Tar``."""
    asked, paths = admit(request, "view"), query_paths(request)
    kind = request.query.get("format", "zip")
    if kind not in ("zip", "tar"):
        raise Refusal(422, "bad-value", "Archives have the format zip or tar.")
    pipes = switch(request.query.get("pipes"), "pipes")
    name = paths[0][-1] if len(paths) == 1 and paths[0] else b"files"
    told = {"Content-Type": f"application/{'zip' if kind == 'zip' else 'x-tar'}"}
    response = web.StreamResponse(
        headers={**SAFETY, **told, "Content-Disposition": disposition(name + f".{kind}".encode())}
    )
    if kind == "zip":
        await asked.run_long(_require_few, paths)
    stream = await asked.run(_begin, paths, Zip() if kind == "zip" else Tar(pipes=pipes))
    try:
        data = await asked.host.run_long(_gather, stream)  # raises for invalid paths before the response starts
        await response.prepare(request)
        request[ANSWER_STARTED] = True
        while data:
            await response.write(data)
            data = await asked.host.run_long(_gather, stream)
        await response.write_eof()
    finally:
        with contextlib.suppress(ValueError):  # a hanging thread still runs the generator
            stream.close()  # type: ignore[attr-defined]
    return response


async def upload(request: web.Request) -> web.Response:
    """Unpack an uploaded tar archive. Each file becomes visible only when it is complete."""
    asked = admit(request, "edit")
    overwrite = request.query.get("overwrite", unpacking.SKIP_EQUAL)
    if overwrite not in unpacking.MODES:
        raise Refusal(422, "bad-value", f"overwrite is one of {', '.join(unpacking.MODES)}.")
    outcome = Outcome()
    async with AsyncExitStack() as rooms:
        await _unpack(TarReader(request.content), _Batch(asked, overwrite, rooms), outcome)
    told = {name: getattr(outcome, name) for name in ("written", "skipped", "equal", "kept", "refused", "bytes")}
    return web.json_response(told)


async def _unpack(reader: TarReader, batch: _Batch, outcome: Outcome) -> None:
    try:
        try:
            async for member in reader.members():
                if (item := await _take(batch, reader, member, outcome)) is not None:
                    await batch.add(item, outcome)
        finally:
            await batch.finish(outcome)  # complete files are kept, and skipped when sent again
    except Refusal as refusal:
        refusal.details = {**refusal.details, "written": outcome.written, "skipped": outcome.skipped}
        raise


class _Batch:
    """Members of an archive that are moved to their paths together. ``rooms``: the space reserved for the large
    members."""

    def __init__(self, asked: TicketedRequest, overwrite: str, rooms: AsyncExitStack) -> None:
        self.asked, self.rooms, self._overwrite = asked, rooms, overwrite
        self._items: list[Item] = []
        self._bytes = 0

    async def add(self, item: Item, outcome: Outcome) -> None:
        """Add a member; move all of them to their paths when there are many."""
        self._items.append(item)
        self._bytes += item.size
        if self._bytes >= _BATCH_BYTES or len(self._items) >= _BATCH_ITEMS:
            await self.flush(outcome)

    async def reserve(self, item: Item, outcome: Outcome) -> None:
        """Reserve the space of a large member. Tries again after the other members have replaced files."""
        replaced = item.parts if self._overwrite in unpacking.REPLACING else None
        for is_last in (not self._items, True):
            try:
                room = self.asked.room(Amount(item.size, 1), replaced=replaced)
                await self.rooms.enter_async_context(room)
                return
            except Refusal:
                if is_last:
                    raise
                await self.flush(outcome)

    async def flush(self, outcome: Outcome) -> None:
        """Move the members to their paths."""
        items, self._items, self._bytes = self._items, [], 0
        if not items:
            return
        try:
            async with self.asked.room(NOTHING) as room:
                done = await self.asked.run_long(unpacking.put, items, self._overwrite, room)
        except Refusal:
            await self.asked.run(unpacking.discard, items)  # the files of large members
            raise
        await self.rooms.aclose()
        self.asked.wrote(done.bytes, freed=done.freed)
        outcome.add(done)

    async def finish(self, outcome: Outcome) -> None:
        """Move the last members to their paths, and sync the names of all, as the response promises them."""
        await self.flush(outcome)
        if outcome.written:
            await self.asked.run_long(unpacking.sync_names)


async def _take(batch: _Batch, reader: TarReader, member: Member, outcome: Outcome) -> Item | None:
    """Read one member; return None for a rejected one, or for the folder itself."""
    try:
        parts = beneath.parse(member.name)
    except beneath.PathRefused as error:
        told = shown(member.name[:1000])
        outcome.refuse({"path": told["name"]}, error.code)
        return None
    if not parts:
        return None
    if member.kind not in ("file", "directory", "link"):
        outcome.refuse({"path": shown(member.name)["name"]}, f"{member.kind}-refused")
        return None
    if member.mtime is None:
        outcome.refuse({"path": shown(member.name)["name"]}, "bad-time")
        return None
    mode = (member.mode & _USUAL_MODES) | _READABLE
    item = Item(parts, member.kind, mode, member.mtime, target=member.target)
    if member.kind != "file":
        return item
    item = replace(item, size=member.size)
    if member.size <= _KEPT_IN_MEMORY:
        data = b"".join([piece async for piece in reader.pieces()])
        return replace(item, data=data)
    return replace(item, draft=await _spool(batch, reader, item, outcome))


async def _spool(batch: _Batch, reader: TarReader, item: Item, outcome: Outcome) -> bytes:
    """Write a large member to ``incoming``; return the name of its file there."""
    asked = batch.asked
    await batch.reserve(item, outcome)
    draft = await asked.run(content.begin)
    try:
        async for data in _joined(reader):
            await asked.host.run(content.append, draft, data)
        await asked.run(_close, draft, item)
    except BaseException:
        with contextlib.suppress(Refusal, OSError):
            await asked.run(content.discard, draft)
        raise
    return draft.name


async def _joined(reader: TarReader) -> AsyncIterator[bytes]:
    pieces: list[bytes] = []
    collected = 0
    async for piece in reader.pieces():
        pieces.append(piece)
        collected += len(piece)
        if collected >= _KEPT_IN_MEMORY:
            yield b"".join(pieces)
            pieces, collected = [], 0
    yield b"".join(pieces)


def _close(tree: FolderTree, draft: content.Draft, item: Item) -> None:
    with draft.file as file:
        os.fchmod(file.fileno(), item.mode)
        unpacking.set_time(file.fileno(), item.mtime)


def _gather(root: int, stream: Iterator[bytes]) -> bytes:
    return packing.gather(stream)


def _require_few(tree: FolderTree, paths: list[Parts]) -> None:
    """Refuse with 413 more entries than a zip archive takes, as its directory is kept in memory."""
    for number, _ in enumerate(select(os.dup(tree.data), paths)):
        if number >= MOST_IN_ZIP:
            message = f"There are more than {MOST_IN_ZIP} files; a zip archive takes no more. Use format=tar."
            raise Refusal(413, "too-many", message, limit=MOST_IN_ZIP)


def _begin(tree: FolderTree, paths: list[Parts], archive: Tar | Zip) -> Iterator[bytes]:
    return packing.pack(select(os.dup(tree.data), paths), archive)
