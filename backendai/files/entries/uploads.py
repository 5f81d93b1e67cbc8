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
from dataclasses import dataclass, replace
from typing import Any

from backendai.base.paths import beneath
from backendai.base.paths.beneath import Parts
from backendai.base.paths.storage_layout import INCOMING
from backendai.files.entries import naming
from backendai.files.entries.content import check_target, place
from backendai.files.entries.naming import names_for
from backendai.files.entries.tree import FolderTree, opened_part, read_json, write_json
from backendai.files.limits.quota import NOTHING, Amount
from backendai.files.refusals import Refusal

KEPT_SECONDS = 86400.0
ENTRIES = 2  # of an upload: its bytes and its state
_ID = re.compile(r"[0-9a-f]{32}\Z")
_FILE_MODE = 0o644


@dataclass(frozen=True, slots=True)
class Upload:
    """One upload: its target path, its length, and the number of saved bytes.

    ``keep_both``: a taken name gets a number; ``placed`` is the path that was chosen then.
    """

    id: str
    parts: Parts
    length: int
    offset: int
    overwrite: bool
    keep_both: bool = False
    placed: Parts | None = None


def create(tree: FolderTree, parts: Parts, length: int, *, overwrite: bool, keep_both: bool = False) -> Upload:
    """Create an upload. Refuses a target that cannot be written."""
    check_target(tree, parts, overwrite=overwrite, keep_both=keep_both)
    upload = Upload(uuid.uuid4().hex, parts, length, 0, overwrite, keep_both)
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
        placed = upload.placed or beneath.followed(tree.data, upload.parts)
        with beneath.parent_of(tree.data, placed) as (parent, name):
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
    synced = replace(upload, offset=offset)
    with opened_part(tree.base, INCOMING) as incoming:
        _write(incoming, synced)
    return synced


def settle(tree: FolderTree, upload_id: str, *, overwrite: bool, keep_both: bool) -> Upload:
    """Save what happens if the upload's name is taken, which a client asks its user after a refusal."""
    tree.require_writable()
    upload = replace(find(tree, upload_id), overwrite=overwrite, keep_both=keep_both)
    with opened_part(tree.base, INCOMING) as incoming:
        _write(incoming, upload)
    return upload


def finish(tree: FolderTree, upload: Upload, *, now: float) -> Amount:
    """Move a complete upload to its path, unless that has been done; returns what the replaced file frees.

    Its state stays, as a client that lost the last answer asks again. Raises FileExistsError.
    """
    with opened_part(tree.base, INCOMING) as incoming:
        if not beneath.exists(incoming, _data(upload.id)):
            return NOTHING
    if not upload.keep_both:
        return place(tree, _data(upload.id), upload.parts, overwrite=upload.overwrite, now=now)
    _place_beside(tree, upload)
    return NOTHING


def _place_beside(tree: FolderTree, upload: Upload) -> None:
    """Move a complete upload to the first free form of its name."""
    tree.require_writable()
    with opened_part(tree.base, INCOMING) as incoming, beneath.parent_of(tree.data, upload.parts) as (parent, name):
        for free in names_for(name, is_directory=False):
            if beneath.exists(parent, free):
                continue
            # Saved before the rename: a client that asks again after a crash finds the file at this path.
            _write(incoming, replace(upload, placed=(*upload.parts[:-1], free)))
            with contextlib.suppress(FileExistsError):
                naming.rename(incoming, _data(upload.id), parent, free, replace=False)
                os.fsync(parent)
                return


def remove(tree: FolderTree, upload_id: str) -> None:
    """Delete an upload. Succeeds if the upload is gone, as browsers repeat a DELETE whose answer was lost."""
    if not _ID.match(upload_id):
        raise _unknown()
    with opened_part(tree.base, INCOMING) as incoming:
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
        placed = content.get("placed")
        return Upload(
            upload_id,
            _parts_of(content["path"]),
            int(content["length"]),
            int(content["offset"]),
            bool(content["overwrite"]),
            bool(content.get("keep_both")),  # an older server did not write it
            _parts_of(placed) if placed else None,
        )
    except (KeyError, ValueError, TypeError) as error:
        raise _unknown() from error


def _unknown() -> Refusal:
    return Refusal(404, "no-upload", "Upload not found: it was cancelled, has expired, or was complete some time ago.")


def _write(incoming: int, upload: Upload) -> None:
    told = {"path": _text_of(upload.parts), "length": upload.length, "offset": upload.offset}
    told |= {"overwrite": upload.overwrite, "keep_both": upload.keep_both}
    if upload.placed:
        told["placed"] = _text_of(upload.placed)
    write_json(incoming, _state(upload.id), told)


def _parts_of(text: object) -> Parts:
    return beneath.parse(base64.b64decode(str(text), validate=True))


def _text_of(parts: Parts) -> str:
    return base64.b64encode(b"/".join(parts)).decode()


def _data(upload_id: str) -> bytes:
    return f"{upload_id}.upload".encode()


def _state(upload_id: str) -> str:
    return f"{upload_id}.json"
