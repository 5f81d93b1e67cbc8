"""Resumable uploads (tus): a file in ``incoming`` for the bytes, and one for the state.

The reported offset is the number of bytes synced to disk; bytes beyond it, left by a crash, are cut off.
"""

from __future__ import annotations

import base64
import contextlib
import io
import os
import re
import stat
import uuid
from dataclasses import dataclass
from typing import Any

from backendai.core import beneath
from backendai.core.beneath import Parts
from backendai.core.storage_layout import INCOMING
from backendai.files.content import check_target, place
from backendai.files.refusals import Refusal
from backendai.files.tree import FolderTree, opened_part, read_json, write_json

KEPT_SECONDS = 86400.0
_ID = re.compile(r"[0-9a-f]{32}\Z")
_FILE_MODE = 0o644


@dataclass(frozen=True, slots=True)
class Upload:
    """One upload: its target path, its length, and the number of saved bytes."""

    id: str
    parts: Parts
    length: int
    offset: int
    overwrite: bool


def create(tree: FolderTree, parts: Parts, length: int, *, overwrite: bool) -> Upload:
    """Create an upload. Refuses a target that cannot be written."""
    check_target(tree, parts, overwrite=overwrite)
    upload = Upload(uuid.uuid4().hex, parts, length, 0, overwrite)
    with opened_part(tree.base, INCOMING) as incoming:
        os.close(os.open(_data(upload.id), os.O_WRONLY | os.O_CREAT | os.O_EXCL, _FILE_MODE, dir_fd=incoming))
        _write(incoming, upload)
    return upload


def find(tree: FolderTree, upload_id: str) -> Upload:
    """Return an upload. Refuses with 404 a cancelled or expired one."""
    with opened_part(tree.base, INCOMING) as incoming:
        upload = _read(incoming, upload_id)
        # A complete upload without a file in ``incoming`` was moved to its path; the file may have been changed since.
        if not beneath.exists(incoming, _data(upload_id)) and not _is_in_place(tree, upload):
            raise _unknown()
        return upload


def _is_in_place(tree: FolderTree, upload: Upload) -> bool:
    """Return whether the upload is complete and a file of its length is at its path."""
    try:
        with beneath.parent_of(tree.data, upload.parts) as (parent, name):
            found = os.stat(name, dir_fd=parent, follow_symlinks=False)
    except OSError:
        return False
    return stat.S_ISREG(found.st_mode) and upload.offset == upload.length == found.st_size


def open_at(tree: FolderTree, upload_id: str, offset: int) -> tuple[Upload, io.FileIO | None]:
    """Return an upload and its file, opened at an offset; no file if the upload is complete. Refuses with 409 an offset
    other than its own."""
    tree.require_writable()
    upload = find(tree, upload_id)
    if offset != upload.offset:
        raise Refusal(409, "wrong-offset", f"The upload is at {upload.offset}, not {offset}.", offset=upload.offset)
    if upload.offset == upload.length:
        return upload, None  # the file may have been moved to its path
    with opened_part(tree.base, INCOMING) as incoming:
        file = io.FileIO(beneath.open_file(incoming, (_data(upload_id),), follow=False, flags=os.O_RDWR), "r+")
        os.ftruncate(file.fileno(), upload.offset)
        os.lseek(file.fileno(), upload.offset, os.SEEK_SET)
    return upload, file


def write(root: int, file: io.FileIO, data: bytes) -> None:
    """Write all bytes at the file's position."""
    view = memoryview(data)
    while view:
        view = view[os.write(file.fileno(), view) :]


def sync(tree: FolderTree, upload: Upload, file: io.FileIO, offset: int) -> Upload:
    """Sync written bytes to disk, then save the new offset."""
    os.fsync(file.fileno())
    synced = Upload(upload.id, upload.parts, upload.length, offset, upload.overwrite)
    with opened_part(tree.base, INCOMING) as incoming:
        _write(incoming, synced)
    return synced


def finish(tree: FolderTree, upload: Upload, *, now: float) -> None:
    """Move a complete upload to its path, unless that has been done.

    Its state stays, as a client that lost the last answer asks again. Raises FileExistsError.
    """
    with opened_part(tree.base, INCOMING) as incoming:
        if not beneath.exists(incoming, _data(upload.id)):
            return
    place(tree, _data(upload.id), upload.parts, overwrite=upload.overwrite, now=now)


def remove(tree: FolderTree, upload_id: str) -> None:
    """Delete an upload."""
    with opened_part(tree.base, INCOMING) as incoming:
        _read(incoming, upload_id)
        for name in (_data(upload_id), _state(upload_id).encode()):
            with contextlib.suppress(FileNotFoundError):
                os.unlink(name, dir_fd=incoming)


def is_state_of_placed(incoming: int, name: bytes) -> bool:
    """Return whether a file in ``incoming`` is the state of a completed upload."""
    upload_id, dot, ending = name.decode(errors="replace").partition(".")
    return (dot + ending) == ".json" and bool(_ID.match(upload_id)) and not beneath.exists(incoming, _data(upload_id))


def _read(incoming: int, upload_id: str) -> Upload:
    content: dict[str, Any] | None = None
    if _ID.match(upload_id):
        content = read_json(incoming, _state(upload_id))
    try:
        if content is None:
            raise ValueError
        parts = beneath.parse(base64.b64decode(str(content["path"]), validate=True))
        return Upload(upload_id, parts, int(content["length"]), int(content["offset"]), bool(content["overwrite"]))
    except (KeyError, ValueError, TypeError) as error:
        raise _unknown() from error


def _unknown() -> Refusal:
    return Refusal(404, "no-upload", "Upload not found: it was cancelled, has expired, or was complete some time ago.")


def _write(incoming: int, upload: Upload) -> None:
    path = base64.b64encode(b"/".join(upload.parts)).decode()
    told = {"path": path, "length": upload.length, "offset": upload.offset, "overwrite": upload.overwrite}
    write_json(incoming, _state(upload.id), told)


def _data(upload_id: str) -> bytes:
    return f"{upload_id}.upload".encode()


def _state(upload_id: str) -> str:
    return f"{upload_id}.json"
