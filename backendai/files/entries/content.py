"""Reads and writes the contents of files. A written file becomes visible only when it is complete."""

from __future__ import annotations

import contextlib
import fcntl
import io
import os
import stat
from dataclasses import dataclass

from backendai.base.paths import beneath
from backendai.base.paths.beneath import Parts
from backendai.base.paths.storage_layout import INCOMING
from backendai.files.entries import naming
from backendai.files.entries.changes import make_room, part_name
from backendai.files.entries.listing import etag_of
from backendai.files.entries.tree import BLOCK, FolderTree, opened_part
from backendai.files.limits.quota import NOTHING, Amount, Room
from backendai.files.refusals import Refusal

LARGEST_TEXT = 2**20
_FILE_MODE = 0o644


@dataclass(frozen=True, slots=True)
class OpenedFile:
    """A regular file that is open for reading, with its state at the time of opening."""

    file: io.FileIO
    size: int
    mtime: float
    etag: str


@dataclass(frozen=True, slots=True)
class Draft:
    """A file in ``incoming`` that is being written; ``finish`` moves it to its path."""

    name: bytes
    file: io.FileIO


def open_content(tree: FolderTree, parts: Parts) -> OpenedFile:
    """Open a regular file for reading; follows links that stay in the folder."""
    descriptor = beneath.open_file(tree.data, parts, follow=True)
    found = os.fstat(descriptor)
    return OpenedFile(io.FileIO(descriptor), found.st_size, found.st_mtime, etag_of(found))


def read_at(root: int, file: io.FileIO, offset: int, size: int) -> bytes:
    """Return ``size`` bytes of an open file; fewer at its end."""
    return os.pread(file.fileno(), size, offset)


def check_target(tree: FolderTree, parts: Parts, *, overwrite: bool, keep_both: bool = False) -> None:
    """Reject a target that cannot be written, before any byte is sent."""
    tree.require_writable()
    with beneath.parent_of(tree.data, beneath.followed(tree.data, parts)) as (parent, name):
        if keep_both or not beneath.exists(parent, name):
            return
        _refuse_directory(parent, name)
    if not overwrite:
        raise Refusal(409, "exists", "There is a file at this path already; say that it may be replaced.")


def begin(tree: FolderTree, name: bytes | None = None) -> Draft:
    """Create an empty file in ``incoming``."""
    draft = name or part_name()
    flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    with opened_part(tree.base, INCOMING) as incoming:
        file = io.FileIO(os.open(draft, flags, _FILE_MODE, dir_fd=incoming), "r+")
    with contextlib.suppress(OSError):  # without locks, leftovers are deleted by their age
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)  # held by the writer until the end
    return Draft(draft, file)


def append(root: int, draft: Draft, data: bytes) -> None:
    """Append all bytes to the draft."""
    view = memoryview(data)
    while view:
        view = view[os.write(draft.file.fileno(), view) :]


def finish(
    tree: FolderTree, draft: Draft, parts: Parts, *, overwrite: bool, now: float, room: Room | None = None
) -> os.stat_result:
    """Sync a draft to the disk and move it to its path; return its status. Raises FileExistsError. ``room``: see
    ``place``."""
    os.fsync(draft.file.fileno())
    place(tree, draft.name, parts, overwrite=overwrite, now=now, room=room)
    found = os.fstat(draft.file.fileno())
    draft.file.close()
    return found


def place(
    tree: FolderTree, draft: bytes, parts: Parts, *, overwrite: bool, now: float, room: Room | None = None
) -> Amount:
    """Move a complete file from ``incoming`` to its path; returns what the replaced file frees. Raises FileExistsError.
    ``room``: counts that, and refuses with 507 if it is less than was reserved."""
    tree.require_writable()
    parts = beneath.followed(tree.data, parts)
    with opened_part(tree.base, INCOMING) as incoming, beneath.parent_of(tree.data, parts) as (parent, name):
        freed = freed_by(parent, name) if overwrite else NOTHING
        with room.replacing(freed) if room else contextlib.nullcontext():
            if overwrite:
                _refuse_directory(parent, name)
                _keep_mode(incoming, draft, parent, name)
                make_room(tree, parts, True, now=now)
            naming.rename(incoming, draft, parent, name, replace=overwrite)
            os.fsync(parent)
    return freed


def freed_by(parent: int, name: bytes) -> Amount:
    """Return what replacing an entry frees: nothing for others than files, which go to the trash, and for a file with
    another hard link."""
    try:
        found = os.stat(name, dir_fd=parent, follow_symlinks=False)
    except FileNotFoundError:
        return NOTHING
    is_freed = stat.S_ISREG(found.st_mode) and found.st_nlink == 1
    return Amount(found.st_blocks * BLOCK, 1) if is_freed else NOTHING


def discard(tree: FolderTree, draft: Draft) -> None:
    """Delete an unfinished draft."""
    draft.file.close()
    with opened_part(tree.base, INCOMING) as incoming, contextlib.suppress(FileNotFoundError):
        os.unlink(draft.name, dir_fd=incoming)


def read_text(tree: FolderTree, parts: Parts) -> tuple[str, str]:
    """Return a small text file and its etag. Refuses larger files and those that are not UTF-8."""
    opened = open_content(tree, parts)
    with opened.file:
        if opened.size > LARGEST_TEXT:
            message = f"The file has {opened.size} bytes; texts of up to {LARGEST_TEXT} can be edited. Download it."
            raise Refusal(413, "too-large", message, limit=LARGEST_TEXT)
        try:
            return opened.file.read().decode(), opened.etag
        except UnicodeDecodeError as error:
            raise Refusal(422, "not-text", "The file is not text in UTF-8. Download it.") from error


def write_text(
    tree: FolderTree, parts: Parts, text: bytes, *, expected: str | None, now: float, room: Room | None = None
) -> str:
    """Replace a text file as a whole and return its new etag. ``expected``: the etag of the replaced file, ``*`` for
    any, None for no file. Refuses with 412 if the file has changed."""
    tree.require_writable()
    if current_etag(tree, parts) != expected and expected != "*":
        raise Refusal(412, "changed", "The file has changed since it was opened. Open it again before you save.")
    draft = begin(tree)
    try:
        append(-1, draft, text)
        return etag_of(finish(tree, draft, parts, overwrite=expected is not None, now=now, room=room))
    except BaseException:
        discard(tree, draft)
        raise


def current_etag(tree: FolderTree, parts: Parts) -> str | None:
    """Return the etag of a regular file; None when there is nothing."""
    try:
        descriptor = beneath.open_file(tree.data, parts, follow=True)
    except FileNotFoundError:
        return None
    try:
        return etag_of(os.fstat(descriptor))
    finally:
        os.close(descriptor)


def _refuse_directory(parent: int, name: bytes) -> None:
    """Refuse to replace a directory by a file."""
    with contextlib.suppress(FileNotFoundError):
        if stat.S_ISDIR(os.stat(name, dir_fd=parent, follow_symlinks=False).st_mode):
            raise Refusal(409, "is-directory", "There is a directory at this path; a file cannot replace it.")


def _keep_mode(incoming: int, draft: bytes, parent: int, name: bytes) -> None:
    """Make the draft executable if the file that it replaces is."""
    with contextlib.suppress(FileNotFoundError):
        found = os.stat(name, dir_fd=parent, follow_symlinks=False)
        if stat.S_ISREG(found.st_mode):
            os.chmod(draft, stat.S_IMODE(found.st_mode) & 0o777, dir_fd=incoming)
