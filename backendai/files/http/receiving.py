"""Stores a request's body: reads it on the event loop, writes it in threads, deletes an incomplete file."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from typing import Any

from aiohttp import web
from aiohttp.streams import StreamReader

from backendai.base.paths.beneath import Parts
from backendai.files.entries import content
from backendai.files.entries.content import Draft
from backendai.files.entries.listing import etag_of
from backendai.files.http.serving import TicketedRequest
from backendai.files.limits.quota import Amount
from backendai.files.refusals import Refusal

CHUNK = 2**20


async def receive(asked: TicketedRequest, request: web.Request, parts: Parts, *, overwrite: bool) -> tuple[str, int]:
    """Save a request's body as the file at a path; returns etag and size. Refuses with 507, even during the upload."""
    replaced = parts if overwrite else None
    async with asked.room(Amount(request.content_length or 0, 1), replaced=replaced) as room:
        draft, written = await asked.run(content.begin), 0
        try:
            async for data in chunks(request.content):
                if request.content_length is None:
                    await asked.add_room(room, len(data), replaced=replaced)
                await asked.host.run(content.append, draft, data)
                room.wrote(len(data))
                written += len(data)
            if request.content_length not in (None, written):
                raise Refusal(400, "cut-off", f"{written} of {request.content_length} bytes have come.")
            told: dict[str, Any] = {"overwrite": overwrite, "now": asked.now, "room": room}
            found = await asked.run(content.finish, draft, parts, **told)
        except BaseException:
            await _throw_away(asked, draft, written)
            raise
    return etag_of(found), written


async def chunks(stream: StreamReader, size: int = CHUNK) -> AsyncIterator[bytes]:
    """Yield the body in chunks of at least ``size`` bytes, large enough for a thread call each."""
    pieces: list[bytes] = []
    collected = 0
    async for piece in stream.iter_any():
        pieces.append(piece)
        collected += len(piece)
        if collected >= size:
            yield b"".join(pieces)
            pieces, collected = [], 0
    if pieces:
        yield b"".join(pieces)


async def _throw_away(asked: TicketedRequest, draft: Draft, written: int) -> None:
    asked.server.ledger.forget(asked.folder_id, Amount(written))
    with contextlib.suppress(Exception):  # the first error is raised; a sweep deletes leftovers
        await asked.run(content.discard, draft)
