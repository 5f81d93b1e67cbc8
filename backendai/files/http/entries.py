"""Handles requests for a folder's entries: lists, changes, and the trash."""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections.abc import Mapping
from typing import Any

from aiohttp import web

from backendai.base.paths.beneath import Parts
from backendai.files.entries import changes
from backendai.files.entries import listing as entries
from backendai.files.entries.listing import MOST_PER_PAGE, Order
from backendai.files.entries.long_lists import LongList
from backendai.files.entries.tree import FolderTree
from backendai.files.folders import trash
from backendai.files.folders.operations import Result, carry_out
from backendai.files.folders.progress import Progress
from backendai.files.http.serving import (
    TicketedRequest,
    admit,
    body_path,
    listed_path,
    query_path,
    read_body,
    switch,
    taken_name,
    whole,
)
from backendai.files.limits.quota import Amount
from backendai.files.refusals import Refusal

_SEARCH_SECONDS = 10.0
_MOST_DELETIONS, _AT_ONCE = 1000, 100
_SORTS = ("name", "size", "mtime")


def add_routes(router: web.UrlDispatcher) -> None:
    folder = "/v1/folders/{folder}"
    router.add_get(f"{folder}/entries", list_entries)
    router.add_get(f"{folder}/entry", show_entry)
    router.add_get(f"{folder}/search", search_entries)
    router.add_post(f"{folder}/directories", create_directory)
    router.add_post(f"{folder}/moves", move_entry)
    router.add_post(f"{folder}/copies", copy_entry)
    router.add_post(f"{folder}/deletions", delete_entries)
    router.add_get(f"{folder}/trash", list_trash)
    router.add_delete(f"{folder}/trash", empty_trash)
    router.add_post(f"{folder}/trash/{{item}}/restore", restore_item)
    router.add_delete(f"{folder}/trash/{{item}}", purge_item)


async def list_entries(request: web.Request) -> web.Response:
    """Return one page of a directory."""
    asked, query = admit(request, "view"), request.query
    by, order = query.get("sort", "name") or "name", query.get("order", "asc") or "asc"
    if by not in _SORTS or order not in ("asc", "desc"):
        raise Refusal(422, "bad-value", "Lists are sorted by name, size or mtime, in the order asc or desc.")
    limit = whole(query.get("limit"), "limit", 200, least=1, most=MOST_PER_PAGE)
    wanted, parts = Order(by, order == "desc", limit, query.get("after", "")), query_path(request)
    try:
        page = await asked.run(entries.read_page, parts, wanted, is_quick=True)
    except LongList:
        page = await asked.run_long(entries.read_page, parts, wanted)
    return web.json_response(page)


async def show_entry(request: web.Request) -> web.Response:
    """Return one entry."""
    asked = admit(request, "view")
    return web.json_response(await asked.run(entries.read_entry, query_path(request)))


async def search_entries(request: web.Request) -> web.Response:
    """Return entries whose names contain the words; stops if the client disconnects."""
    asked, words = admit(request, "view"), request.query.get("q", "").strip()
    if not words:
        raise Refusal(422, "bad-value", "q is empty: name a part of what you look for.")
    stopped = threading.Event()
    until = time.monotonic() + _SEARCH_SECONDS
    work = asked.run_long(
        entries.search, query_path(request), words, until=until, stopped=stopped, clock=time.monotonic
    )
    try:
        return web.json_response(await asyncio.shield(asyncio.ensure_future(work)))
    finally:
        stopped.set()


async def create_directory(request: web.Request) -> web.Response:
    """Create a directory."""
    asked, body = admit(request, "edit"), await read_body(request)
    parts = body_path(body)
    async with asked.room(Amount(0, 1)):
        await asked.run(changes.make_directory, parts)
    return web.json_response(entries.shown_path(parts), status=201)


async def move_entry(request: web.Request) -> web.Response:
    """Move or rename an entry."""
    asked, body = admit(request, "edit"), await read_body(request)
    source, target = body_path(body, "source"), body_path(body, "target")
    moved = await asked.run(changes.move, source, target, **taken_name(body), now=asked.now)
    return web.json_response(entries.shown_path(moved))


async def copy_entry(request: web.Request) -> web.Response:
    """Copy an entry within the folder: to the path ``target``, or with its name into the directory ``into``."""
    asked, body = admit(request, "edit"), await read_body(request)
    source = body_path(body, "source")
    target = (*body_path(body, "into"), *source[-1:]) if "into" in body else body_path(body, "target")
    taken = taken_name(body)

    async def work(progress: Progress) -> Result:
        return 201, entries.shown_path(await _copy(asked, source, target, taken, progress))

    return await carry_out(request, asked, work)


async def delete_entries(request: web.Request) -> web.Response:
    """Move entries to the folder's trash, or delete them with ``forever``; skips missing ones."""
    asked, body = admit(request, "edit"), await read_body(request)
    told = body.get("paths")
    if not isinstance(told, list) or not 1 <= len(told) <= _MOST_DELETIONS:
        raise Refusal(422, "bad-body", f"paths is a list of 1 to {_MOST_DELETIONS} paths.")
    paths = [listed_path(item) for item in told]
    forever = switch(body.get("forever"), "forever")

    async def work(progress: Progress) -> Result:
        progress.total_files = len(paths)
        if not forever:
            return 200, await asked.run_in_background("operation", _delete, paths, asked.now, progress)
        asked.server.later(_remove(asked, await asked.run_in_background("operation", _hide, paths, progress)))
        return 200, {"items": []}

    return await carry_out(request, asked, work)


async def list_trash(request: web.Request) -> web.Response:
    """Return the deleted entries in the trash."""
    asked = admit(request, "view")
    limit = whole(request.query.get("limit"), "limit", 200, least=1, most=MOST_PER_PAGE)
    return web.json_response(await asked.run_long(trash.list_trash, after=request.query.get("after", ""), limit=limit))


async def restore_item(request: web.Request) -> web.Response:
    """Restore an item of the trash."""
    asked, body = admit(request, "edit"), await read_body(request)
    return web.json_response(
        await asked.run(trash.restore, request.match_info["item"], **taken_name(body), now=asked.now)
    )


async def purge_item(request: web.Request) -> web.Response:
    """Purge an item of the trash."""
    asked = admit(request, "edit")
    return _removing(asked, [await asked.run(trash.hide_item, request.match_info["item"])])


async def empty_trash(request: web.Request) -> web.Response:
    """Purge all items of the trash."""
    asked = admit(request, "edit")
    return _removing(asked, await asked.run_long(_hide_all))


def _hide_all(tree: FolderTree) -> list[bytes]:
    tree.require_writable()
    return trash.hide_all(tree)


def _removing(asked: TicketedRequest, hidden: list[bytes]) -> web.Response:
    """Return the number of purged items, and delete them from disk afterwards."""
    asked.server.later(_remove(asked, hidden))
    return web.json_response({"removed": len(hidden)}, status=202)


async def _remove(asked: TicketedRequest, hidden: list[bytes]) -> None:
    await asked.run_in_background("remove", trash.remove_hidden, hidden)
    asked.wrote()


async def _copy(
    asked: TicketedRequest, source: Parts, target: Parts, taken: Mapping[str, bool], progress: Progress
) -> Parts:
    """Copy an entry and return the path of the copy; the bytes of a failed copy are not counted."""
    amount = await asked.run_in_background("operation", entries.amount_below, source)
    progress.total_bytes = amount.bytes
    async with asked.room(amount, replaced=target if taken["overwrite"] else None) as room:

        def count(more: int) -> None:
            room.wrote(more)
            progress.add_bytes(more)

        try:
            return await asked.run_in_background(
                "operation", changes.copy, source, target, **taken, now=asked.now, written=count
            )
        except BaseException:
            asked.server.ledger.forget(asked.folder_id, Amount(progress.bytes))
            raise


def _hide(tree: FolderTree, paths: list[Parts], progress: Progress) -> list[bytes]:
    hidden: list[bytes] = []
    for parts in paths:
        with contextlib.suppress(FileNotFoundError):
            hidden.append(trash.hide_path(tree, parts))
        progress.add_files()
    return hidden


def _delete(tree: FolderTree, paths: list[Parts], now: float, progress: Progress) -> dict[str, Any]:
    items: list[dict[str, str]] = []
    for start in range(0, len(paths), _AT_ONCE):
        some = paths[start : start + _AT_ONCE]
        # Skips entries that were deleted meanwhile, as the request wanted them deleted.
        moved = trash.put_many_into_trash(tree, some, now=now)
        items += [{"id": item, **entries.shown_path(parts)} for item, parts in moved]
        progress.add_files(len(some))
    return {"items": items}
