"""The bytes of files of folders: the client gets an address with a token, and the file server does the work.

A token is for one upload or one file, for a day, and ends with the key pair and the rights of its user.
"""

from __future__ import annotations

import base64
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from typing import Any
from urllib.parse import quote

import aiohttp
from django.core import signing
from django.http import HttpResponse, StreamingHttpResponse
from rest_framework.authentication import BaseAuthentication
from rest_framework.exceptions import AuthenticationFailed
from rest_framework.request import Request

from backendai.base.core.errors import UserError
from backendai.domain.accounts.models import KeyPair, User
from backendai.domain.storage.file_server import FileServerError, StorageSilent
from backendai.domain.storage.services import folder_ticket
from backendai.domain.storage.status import Rights
from backendai.gates.gateways.dialing import new_client
from backendai.portal.api.frame.asynchronous import look
from backendai.portal.api.sessions.execute import pieces_of
from backendai.portal.compat.folders import clean_path
from backendai.portal.compat.frame import LONGEST_PATH, PREFIX, Call, NotOffered
from backendai.portal.compat.names import named_folder

LARGEST_PART = 64 * 2**20  # the client sends 16 MiB at a time
TOKEN_SECONDS = 24 * 3600
LARGEST_UPLOAD = 2**50
_SALT = "compat-storage"
_SILENCE_SECONDS, _PIECE = 60.0, 2**18
_TUS = {"Tus-Resumable": "1.0.0", "Cache-Control": "no-store"}
_TOLD = ("Content-Length", "Content-Range", "Last-Modified", "ETag", "Accept-Ranges")


class StorageToken(BaseAuthentication):
    """``?token=``: a token of an upload or a download, for its user and key pair."""

    def authenticate(self, request: Request) -> tuple[User, KeyPair]:
        """Return the user and the key pair."""
        access_key = _claims(request.query_params.get("token", "")).get("pair")
        pairs = KeyPair.objects.select_related("user").filter(is_active=True, user__is_active=True)
        if (pair := pairs.filter(pk=access_key).first()) is None:
            raise AuthenticationFailed("The key pair of this token is no longer active.", code="invalid-token")
        return pair.user, pair

    def authenticate_header(self, request: Request) -> str:
        """Return the challenge, which turns a refusal into 401 instead of 403."""
        return "Token"


async def request_upload(call: Call, name: str) -> dict[str, str]:
    """Create an upload that replaces a file of the same name, and return the address of its parts."""
    path, size = clean_path(await look(call.text, "path", most=LONGEST_PATH)), call.values.get("size")
    if isinstance(size, bool) or not isinstance(size, int) or not 0 <= size <= LARGEST_UPLOAD:
        raise UserError("size must be a number of bytes.", field="size")
    folder = await look(lambda: named_folder(call.user, name))
    metadata = f"path {_base64(path)},overwrite {_base64('1')}"
    head = {"Upload-Length": str(size), "Upload-Metadata": metadata}
    async with AsyncExitStack() as stack:
        made = await _asked(stack, call, "POST", folder.pk.hex, "uploads", Rights.EDIT, headers=_TUS | head)
        upload = made.headers["Location"].rpartition("/")[2]
    return _granted(call, "upload", folder=folder.pk.hex, upload=upload)


def request_download(call: Call, name: str) -> dict[str, str]:
    """Return the address of a file."""
    folder = named_folder(call.user, name)
    folder_ticket(call.user, folder, Rights.VIEW)
    path = clean_path(call.text("path", None if "path" in call.values else call.text("file"), most=LONGEST_PATH))
    return _granted(call, "download", folder=folder.pk.hex, path=path)


async def append(call: Call) -> HttpResponse:
    """Append a part to an upload."""
    claims, query = _claims(call.request.query_params["token"]), call.request.query_params
    if "dst_dir" in query:
        raise NotOffered("Models are uploaded as other files of folders are: without a version of the model.")
    head = {name: call.request.headers.get(name, "") for name in ("Upload-Offset", "Content-Length")}
    head = _TUS | {"Content-Type": "application/offset+octet-stream"} | {key: one for key, one in head.items() if one}
    body = pieces_of(call.request)
    return await _tus(call, "PATCH", claims, headers=head, data=body)


async def offset(call: Call) -> HttpResponse:
    """Return how much of an upload is there."""
    return await _tus(call, "HEAD", _claims(call.request.query_params["token"]), headers=_TUS)


async def read(call: Call) -> StreamingHttpResponse:
    """Return a file, or a range of it."""
    claims, asked = _claims(call.request.query_params["token"]), call.request.headers
    head = {name: asked[name] for name in ("Range", "If-Range") if name in asked}
    part, stack = f"content?path={quote(str(claims.get('path')), safe='')}", AsyncExitStack()
    try:
        answer = await _asked(stack, call, "GET", claims["folder"], part, Rights.VIEW, headers=head)
    except BaseException:
        await stack.aclose()
        raise
    told = StreamingHttpResponse(_sent(stack, answer), status=answer.status, content_type="application/octet-stream")
    for name in _TOLD:
        if name in answer.headers:
            told[name] = answer.headers[name]
    told["Cache-Control"], told["X-Content-Type-Options"] = "no-store", "nosniff"
    told["Content-Disposition"] = f"attachment; filename*=UTF-8''{quote(str(claims['path']).rpartition('/')[2])}"
    return told


async def _tus(call: Call, method: str, claims: dict[str, Any], **sent: Any) -> HttpResponse:
    part = f"uploads/{quote(str(claims.get('upload')), safe='')}"
    async with AsyncExitStack() as stack:
        answer = await _asked(stack, call, method, claims["folder"], part, Rights.EDIT, **sent)
        told = {name: answer.headers[name] for name in ("Upload-Offset", "Upload-Length") if name in answer.headers}
        return HttpResponse(status=answer.status, headers=_TUS | told)


async def _asked(
    stack: AsyncExitStack, call: Call, method: str, folder: str, part: str, rights: Rights, **sent: Any
) -> aiohttp.ClientResponse:
    """Return the file server's answer, open until the stack closes. Raises FileServerError for a refusal."""
    stack.enter_context(call.held())
    row = await look(lambda: named_folder(call.user, folder))
    way = await look(folder_ticket, call.user, row, rights)
    sent["headers"] = {**sent["headers"], "Authorization": f"Bearer {way.ticket}"}
    limits = aiohttp.ClientTimeout(total=None, sock_connect=5.0, sock_read=_SILENCE_SECONDS)
    try:
        client = await stack.enter_async_context(new_client())
        address = f"{way.address.rstrip('/')}/v1/folders/{row.pk}/{part}"
        answer = await stack.enter_async_context(client.request(method, address, timeout=limits, **sent))
    except (aiohttp.ClientError, TimeoutError) as error:
        raise StorageSilent("The storage host {host} does not answer. Try again later.", host=row.host.name) from error
    if answer.status >= 400:
        raise await _refusal(answer)
    return answer


async def _refusal(answer: aiohttp.ClientResponse) -> FileServerError:
    try:
        told = await answer.json(content_type=None)
        text, code = str(told["message"])[:500], str(told["code"])[:64]
    except (ValueError, KeyError, TypeError, aiohttp.ClientError):
        text, code = f"The file server answered {answer.status}.", "storage-refused"
    return FileServerError("{text}", text=text, status=answer.status, code=code)


async def _sent(stack: AsyncExitStack, answer: aiohttp.ClientResponse) -> AsyncIterator[bytes]:
    async with stack:
        async for piece in answer.content.iter_chunked(_PIECE):
            yield piece


def _granted(call: Call, kind: str, **claims: str) -> dict[str, str]:
    token = signing.dumps({"pair": call.pair.pk, **claims}, salt=_SALT)
    return {"token": token, "url": call.request.build_absolute_uri(f"{PREFIX}/storage/{kind}")}


def _claims(token: str) -> dict[str, Any]:
    try:
        claims: dict[str, Any] = signing.loads(token, salt=_SALT, max_age=TOKEN_SECONDS)
    except signing.BadSignature as error:
        raise AuthenticationFailed("The token is not valid, or a day old.", code="invalid-token") from error
    return claims


def _base64(text: str) -> str:
    return base64.b64encode(text.encode()).decode()
