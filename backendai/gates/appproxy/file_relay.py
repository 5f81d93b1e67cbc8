"""Forwards one request for a folder's files to the file server, and streams the answer back."""

from __future__ import annotations

import asyncio
import re
from collections import Counter
from collections.abc import Mapping

import aiohttp
from aiohttp import web
from django.utils import timezone
from multidict import CIMultiDict
from yarl import URL

from backendai.base.core.messages import Message
from backendai.gates.appproxy.file_grants import FolderTarget
from backendai.gates.appproxy.programs import settle_answer
from backendai.gates.appproxy.relay import TooManyConcurrentRequests, pieces_of

MOST_OF_VISITOR = 64  # requests at once
DIAL_SECONDS, SILENCE_SECONDS = 3.0, 300.0
READER_SECONDS = 300.0  # a paused video is not read for a while
_BUFFER = 256 * 1024
_PATH = re.compile(
    r"/(entries|entry|search|directories|moves|copies|deletions|text|content|archive|uploads(/[\w-]{1,64})?"
    r"|operations/[0-9a-f]{1,64}|trash(/[\w.-]{1,64}(/restore)?)?)\Z",
    re.ASCII,
)
_ASKED = frozenset({"accept", "content-length", "content-type", "if-match", "if-modified-since", "if-none-match"}) | {
    "if-range", "if-unmodified-since", "range", "tus-resumable", "upload-length", "upload-metadata", "upload-offset",
}  # fmt: skip
_ANSWERED = frozenset({"accept-ranges", "content-disposition", "content-encoding", "content-length"}) | {
    "content-range", "content-type", "etag", "last-modified", "retry-after", "tus-extension", "tus-max-size",
    "tus-resumable",
    "tus-version", "upload-expires", "upload-length", "upload-metadata", "upload-offset", "x-content-sha256",
}  # fmt: skip
# What people upload may be a page with scripts: it gets no script, no form, no frame and no request of its own.
_POLICY = (
    "sandbox; default-src 'none'; style-src 'unsafe-inline'; img-src 'self' data:; media-src 'self'; "
    "frame-ancestors 'none'; base-uri 'none'; form-action 'none'"
)
# A browser's viewer of PDF files does not work in a sandbox; with this type and nosniff nothing else reads the file.
_POLICY_OF_PDF = _POLICY.removeprefix("sandbox; ").replace(
    "default-src 'none'", "default-src 'none'; object-src 'self'"
)
_ALWAYS = {
    "Cache-Control": "private, no-cache",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}


class NoSuchOperation(Exception):
    """The path is none of the file server's operations that browsers may use."""


class FileRelay:
    """Forwards requests to file servers. Must be created and closed inside a running event loop."""

    def __init__(self) -> None:
        self._client = aiohttp.ClientSession(
            auto_decompress=False,
            connector=aiohttp.TCPConnector(limit=0, keepalive_timeout=10.0),
            cookie_jar=aiohttp.DummyCookieJar(),
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=DIAL_SECONDS, sock_read=SILENCE_SECONDS),
            skip_auto_headers=("User-Agent", "Accept", "Accept-Encoding", "Content-Type"),
            read_bufsize=_BUFFER,
        )
        self._under_way: Counter[str] = Counter()

    async def close(self) -> None:
        """Close every connection."""
        await self._client.close()

    async def pass_on(
        self, request: web.BaseRequest, target: FolderTarget, more_headers: Mapping[str, str]
    ) -> web.StreamResponse:
        """Forward the request to the file server, send its answer to the client, and return the answer.
        ``more_headers`` are added to it. Before anything is sent, raises NoSuchOperation for a forbidden path, or
        aiohttp.ClientError (Crowded for too many requests).
        """
        url = _address(request.raw_path, target)
        if self._under_way[target.visitor] >= MOST_OF_VISITOR:
            raise TooManyConcurrentRequests(Message("too many requests are under way"))
        self._under_way[target.visitor] += 1
        try:
            headers = CIMultiDict((name, text) for name, text in request.headers.items() if name.lower() in _ASKED)
            headers.update(target.ticket(timezone.now()))
            body = pieces_of(request) if request.body_exists else None
            asking = self._client.request(request.method, url, headers=headers, data=body, allow_redirects=False)
            async with asking as answer:
                return await _send(request, answer, target, more_headers)
        finally:
            self._under_way[target.visitor] -= 1
            if not self._under_way[target.visitor]:
                del self._under_way[target.visitor]


def _address(raw_path: str, target: FolderTarget) -> URL:
    path, mark, query = raw_path.partition("?")
    if not _PATH.fullmatch(path):
        raise NoSuchOperation(path[:64])
    return URL(f"{target.address.rstrip('/')}/v1/folders/{target.folder_id}{path}{mark}{query}", encoded=True)


async def _send(
    request: web.BaseRequest, answer: aiohttp.ClientResponse, target: FolderTarget, more_headers: Mapping[str, str]
) -> web.StreamResponse:
    is_pdf = answer.content_type == "application/pdf"
    headers = CIMultiDict((name, text) for name, text in answer.headers.items() if name.lower() in _ANSWERED)
    headers.update(_ALWAYS | {"Content-Security-Policy": _POLICY_OF_PDF if is_pdf else _POLICY} | dict(more_headers))
    if location := answer.headers.get("Location"):
        _, found, rest = location.partition(f"/v1/folders/{target.folder_id}/")
        headers["Location"] = f"/{rest}" if found else "/"
    settle_answer(request, headers)
    response = web.StreamResponse(status=answer.status, reason=answer.reason, headers=headers)
    await response.prepare(request)
    async for piece in answer.content.iter_any():
        async with asyncio.timeout(READER_SECONDS):
            await response.write(piece)
    await response.write_eof()
    return response
