"""Files of a running session: lists, takes and sends them as the official client does, a tar for each file."""

from __future__ import annotations

import contextlib
import json
import stat
import tarfile
import time
from collections.abc import AsyncIterator
from typing import Any, TypeVar
from urllib.parse import unquote
from uuid import uuid4

from django.http import StreamingHttpResponse

from backendai.base.core.errors import UserError
from backendai.base.wire.runs import LARGEST_FILE
from backendai.gates.gateways.guests import GuestTarget, file_of, put_file
from backendai.gates.gateways.homes import ask_home
from backendai.gates.gateways.ssh_access import HOME, key_of
from backendai.portal.api.frame.asynchronous import look
from backendai.portal.api.frame.errors import BodyTooLarge
from backendai.portal.api.frame.multipart import files_in
from backendai.portal.api.sessions.execute import pieces_of
from backendai.portal.compat.frame import LONGEST_PATH, Call
from backendai.portal.compat.names import guest_of, named_session

MOST_FILES, MOST_ENTRIES = 100, 1000
LARGEST_FORM = LARGEST_FILE + 2**20
SSH_KEY = "id_container"  # the file that ``backend.ai ssh`` downloads first
_BLOCK = 512  # of a tar
T = TypeVar("T")
_Content = AsyncIterator[bytes]


async def entries(call: Call, name: str) -> dict[str, Any]:
    """Return the entries of a directory, 1,000 at most."""
    target, path = await look(guest_of, call, name), inside(await look(call.text, "path", ".", most=LONGEST_PATH))
    found = (await ask_home(target, "list", path=path, limit=MOST_ENTRIES))["entries"]
    place = f"{HOME}/{path}".rstrip("/")
    return {"files": json.dumps([_entry(one) for one in found]), "errors": "", "abspath": place, "folder_path": place}


async def upload(call: Call, name: str) -> None:
    """Write the files of a form below the home folder, each completely or not at all."""
    target, kind, count = await look(guest_of, call, name), call.request.headers.get("Content-Type", ""), 0
    async with contextlib.aclosing(files_in(kind, pieces_of(call.request))) as files:
        async for path, content in files:
            count += 1
            if count > MOST_FILES:
                raise BodyTooLarge(f"A form may have {MOST_FILES} files at most.")
            await put_file(target, inside(unquote(path)), content)  # the client quotes slashes


async def download(call: Call, name: str) -> StreamingHttpResponse:
    """Return files as parts of a form, each as a tar; ``id_container`` is the session's own SSH key."""
    session = await look(lambda: named_session(call.user, name))
    paths, edge = await look(call.texts, "files"), uuid4().hex
    if paths == [SSH_KEY]:
        key = (await look(key_of, call.user, session))[0].encode()
        parts = _parts(edge, _each(_packed(SSH_KEY, 0o600, len(key), _each(key))))
    else:
        parts = _parts(edge, _tars(await look(guest_of, call, name), paths))
    opened = await anext(parts)  # a refusal of the first file is the answer
    answer = StreamingHttpResponse(_rest(opened, parts), content_type=f"multipart/mixed; boundary={edge}")
    answer["Cache-Control"] = "no-store"
    return answer


def inside(path: str) -> str:
    """Return a path relative to the home folder."""
    words = path.removeprefix(HOME).split("/")
    return "/".join(word for word in words if word not in ("", "."))


def _entry(one: dict[str, Any]) -> dict[str, Any]:
    is_folder, at = one.get("kind") == "directory", one.get("mtime") or 0
    mode = stat.filemode((stat.S_IFDIR | 0o755) if is_folder else (stat.S_IFREG | 0o644))
    return {"filename": one["name"], "size": one.get("size") or 0, "mtime": at, "ctime": at, "atime": at, "mode": mode}


async def _tars(target: GuestTarget, paths: list[str]) -> AsyncIterator[_Content]:
    for path in paths:
        async with file_of(target, inside(path)) as (about, content):
            if about.get("type") != "file":
                text = "{path} is a directory: name its files, or copy it with scp."
                raise UserError(text, path=path, code="not-a-file")
            yield _packed(path.rpartition("/")[2], 0o644, int(about["size"]), content)


async def _parts(edge: str, tars: AsyncIterator[_Content]) -> _Content:
    async for tar in tars:
        yield f"--{edge}\r\nContent-Type: application/x-tar\r\nContent-Encoding: identity\r\n\r\n".encode()
        async for piece in tar:
            yield piece
        yield b"\r\n"
    yield f"--{edge}--\r\n".encode()


async def _packed(name: str, mode: int, size: int, content: _Content) -> _Content:
    about = tarfile.TarInfo(name)
    about.size, about.mode, about.mtime = size, mode, int(time.time())
    yield about.tobuf(tarfile.PAX_FORMAT)
    async for piece in content:
        yield piece
    yield bytes(-size % _BLOCK + 2 * _BLOCK)


async def _each(*things: T) -> AsyncIterator[T]:
    for one in things:
        yield one


async def _rest(first: bytes, parts: _Content) -> _Content:
    yield first
    async for piece in parts:
        yield piece
