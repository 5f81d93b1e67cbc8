"""Handles requests for the contents of files: download with ranges, upload of one file, editing of texts."""

from __future__ import annotations

import io
import re
from email.utils import formatdate
from typing import Any
from urllib.parse import quote

from aiohttp import web

from backendai.base.paths.beneath import Parts
from backendai.files.entries import content
from backendai.files.entries.content import LARGEST_TEXT, OpenedFile
from backendai.files.http.receiving import receive
from backendai.files.http.serving import ANSWER_STARTED, TicketedRequest, admit, query_path, switch
from backendai.files.limits.quota import Amount
from backendai.files.refusals import Refusal

_CHUNK = 2**20
_RANGE = re.compile(r"bytes=(\d{0,18})-(\d{0,18})\Z")
# Uploaded content must never run with the portal's origin, even if a browser displays it.
SAFETY = {
    "X-Content-Type-Options": "nosniff",
    "Content-Security-Policy": "sandbox; default-src 'none'; img-src 'self'; media-src 'self'",
    "Cross-Origin-Resource-Policy": "same-site",
    "Cache-Control": "private, no-cache",
}


def add_routes(router: web.UrlDispatcher) -> None:
    folder = "/v1/folders/{folder}"
    router.add_get(f"{folder}/content", download)
    router.add_put(f"{folder}/content", upload)
    router.add_get(f"{folder}/text", show_text)
    router.add_put(f"{folder}/text", save_text)


async def download(request: web.Request) -> web.StreamResponse:
    """Return a file or a range of it."""
    asked, parts = admit(request, "view"), query_path(request)
    opened = await asked.run(content.open_content, parts)
    with opened.file:
        tag = f'"{opened.etag}"'
        if tag in _tags(request.headers.get("If-None-Match", "")):
            return web.Response(status=304, headers={"ETag": tag})
        start, end = _range(request, opened, tag)
        head = await asked.host.run(content.read_at, opened.file, 0, 512)
        response = web.StreamResponse(headers=_headers(request, parts, opened, head))
        if (start, end) != (0, opened.size):
            response.set_status(206)
            response.headers["Content-Range"] = f"bytes {start}-{end - 1}/{opened.size}"
        response.content_length = end - start
        await response.prepare(request)
        request[ANSWER_STARTED] = True
        if request.method != "HEAD":
            await send(asked, response, opened.file, start, end)
    return response


async def send(asked: TicketedRequest, response: web.StreamResponse, file: io.FileIO, start: int, end: int) -> None:
    """Send the bytes of an open file. If the file has become shorter, the connection breaks off."""
    while start < end:
        data = await asked.host.run(content.read_at, file, start, min(_CHUNK, end - start))
        if not data:
            raise ConnectionAbortedError("the file has become shorter")
        await response.write(data)
        start += len(data)
    await response.write_eof()


async def upload(request: web.Request) -> web.Response:
    """Store one uploaded file. It becomes visible only when it is complete."""
    asked, parts = admit(request, "edit"), query_path(request)
    overwrite = switch(request.query.get("overwrite"), "overwrite")
    await asked.run(content.check_target, parts, overwrite=overwrite)
    etag, size = await receive(asked, request, parts, overwrite=overwrite)
    return web.json_response({"size": size, "etag": etag}, status=201, headers={"ETag": f'"{etag}"'})


async def show_text(request: web.Request) -> web.Response:
    """Return a small text file for editing."""
    asked = admit(request, "view")
    text, etag = await asked.run(content.read_text, query_path(request))
    return web.Response(text=text, content_type="text/plain", headers={**SAFETY, "ETag": f'"{etag}"'})


async def save_text(request: web.Request) -> web.Response:
    """Save a text file, unless it has changed since it was opened."""
    asked, parts = admit(request, "edit"), query_path(request)
    expected = _expected(request)
    text = bytearray()
    async for piece in request.content.iter_any():
        text += piece
        if len(text) > LARGEST_TEXT:
            raise Refusal(413, "too-large", f"Texts of up to {LARGEST_TEXT} bytes can be saved.", limit=LARGEST_TEXT)
    try:
        text.decode()
    except UnicodeDecodeError as error:
        raise Refusal(422, "not-text", "The text is not UTF-8.") from error
    async with asked.room(Amount(len(text), 1), replaced=parts if expected else None) as room:
        room.wrote(len(text))  # before what a replaced file frees is subtracted
        told: dict[str, Any] = {"expected": expected, "now": asked.now, "room": room}
        etag = await asked.run(content.write_text, parts, bytes(text), **told)
    return web.json_response({"etag": etag}, headers={"ETag": f'"{etag}"'})


def disposition(name: bytes, *, inline: bool = False) -> str:
    """Return a Content-Disposition header in ASCII for any file name."""
    plain = re.sub(r"[^A-Za-z0-9._ -]", "_", name.decode(errors="replace")) or "download"
    return f"{'inline' if inline else 'attachment'}; filename=\"{plain}\"; filename*=UTF-8''{quote(name, safe='')}"


def _headers(request: web.Request, parts: Parts, opened: OpenedFile, head: bytes) -> dict[str, str]:
    shown = media_type(head) if switch(request.query.get("inline"), "inline") else None
    return {
        **SAFETY,
        "Content-Type": shown or "application/octet-stream",
        "Content-Disposition": disposition(parts[-1], inline=shown is not None),
        "Accept-Ranges": "bytes",
        "ETag": f'"{opened.etag}"',
        "Last-Modified": formatdate(opened.mtime, usegmt=True),
    }


def _range(request: web.Request, opened: OpenedFile, tag: str) -> tuple[int, int]:
    """Return the requested range of bytes. The whole file, unless one range is named and the file is unchanged."""
    told = request.headers.get("Range")
    if told is None or request.headers.get("If-Range", tag) != tag or not (found := _RANGE.match(told)):
        return 0, opened.size
    first, last = found.groups()
    if not first:
        start, end = max(0, opened.size - int(last or 0)), opened.size
    else:
        start, end = int(first), min(opened.size, int(last) + 1 if last else opened.size)
    if start >= end:
        raise Refusal(416, "bad-range", f"The file has {opened.size} bytes.", size=opened.size)
    return start, end


def _expected(request: web.Request) -> str | None:
    """Return the etag of the file to replace; None if the file must be new."""
    if request.headers.get("If-None-Match") == "*":
        return None
    told = request.headers.get("If-Match")
    if told is None:
        raise Refusal(428, "no-etag", "Send If-Match with the ETag of the text, or If-None-Match: * for a new file.")
    return told.strip().removeprefix("W/").strip('"')


def _tags(told: str) -> list[str]:
    return [tag.strip().removeprefix("W/") for tag in told.split(",")]


_MAGIC: tuple[tuple[int, bytes, str], ...] = (
    (0, b"\x89PNG\r\n\x1a\n", "image/png"),
    (0, b"\xff\xd8\xff", "image/jpeg"),
    (0, b"GIF87a", "image/gif"),
    (0, b"GIF89a", "image/gif"),
    (8, b"WEBP", "image/webp"),
    (4, b"ftypavif", "image/avif"),
    (0, b"BM", "image/bmp"),
    (0, b"%PDF-", "application/pdf"),
    (4, b"ftypisom", "video/mp4"),
    (4, b"ftypmp4", "video/mp4"),
    (4, b"ftypM4V", "video/mp4"),
    (0, b"\x1aE\xdf\xa3", "video/webm"),
    (0, b"OggS", "audio/ogg"),
    (0, b"ID3", "audio/mpeg"),
    (0, b"fLaC", "audio/flac"),
    (8, b"WAVE", "audio/wav"),
)
_LONGEST_CHARACTER = 4


def media_type(head: bytes) -> str | None:
    """Return the media type to show a file as; None for a download. HTML and SVG are shown as plain text."""
    for offset, mark, kind in _MAGIC:
        if head[offset : offset + len(mark)] == mark:
            return kind
    return "text/plain; charset=utf-8" if _is_text(head) else None


def _is_text(head: bytes) -> bool:
    if b"\0" in head:
        return False
    try:
        head.decode()
    except UnicodeDecodeError as error:
        # The last character may be incomplete.
        return error.end == len(head) and len(head) - error.start < _LONGEST_CHARACTER and len(head) > error.start > 0
    return True
