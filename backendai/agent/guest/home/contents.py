"""Reads and writes the session's files as the session's user; only that user's rights and quota limit it."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import errno
import filecmp
import os
import re
import stat
import struct
from pathlib import Path
from typing import Any
from uuid import uuid4

LARGEST_FILE = 2**30
_LARGEST_CHUNK = 2**20
_PIECE = 256 * 1024
_MOST_ENTRIES = 10_000
_PAUSE_SECONDS = 10.0  # between two chunks of a refused upload
_RAW = "//raw:"  # the prefix of paths that are not UTF-8
_MOUNTINFO = "/proc/self/mountinfo"
_ESCAPED = re.compile(rb"\\([0-7]{3})")


class FileRefused(Exception):
    """The file cannot be read or written; ``code`` and message give the reason. ``template`` has placeholders for the
    values, so that the portal can translate it."""

    def __init__(self, template: str, code: str, **values: Any) -> None:
        self.code, self.template, self.values = code, template, values
        self.message = template.format(**values) if values else template
        super().__init__(self.message)

    def told(self) -> dict[str, Any]:
        """Return the error in the format of an answer."""
        more = {"told": {"text": self.template, "values": self.values}} if self.values else {}
        return {"code": self.code, "message": self.message, **more}


def home() -> Path:
    """Return the home folder, at which paths begin."""
    return Path(os.environ.get("HOME") or "/")


def place_of(path: str) -> Path:
    """Return the absolute path of a path below the home folder. Raises FileRefused."""
    try:
        named = _decoded(path) if path.startswith(_RAW) else path
        is_long = len(os.fsencode(named)) > 4096
    except ValueError:
        named, is_long = "..", True
    parts = [part for part in named.split("/") if part not in ("", ".")]
    if is_long or ".." in parts or "\0" in named:
        raise FileRefused("The path is not valid: name a file below the home folder, without '..'.", "bad-path")
    return home().joinpath(*parts)


def mounts_below(place: Path) -> list[str]:
    """Return the mount points at and below a path, which no operation on the home may touch. Empty for a symbolic link,
    as deleting a link leaves its target."""
    if place.is_symlink():
        return []
    real = os.path.realpath(place)
    return [point for point in _points() if point == real or point.startswith(real.rstrip("/") + "/")]


def _points() -> list[str]:
    try:
        fields = [line.split()[4] for line in Path(_MOUNTINFO).read_bytes().splitlines()]
    except (OSError, IndexError):
        return []
    return [os.fsdecode(_ESCAPED.sub(lambda found: bytes([int(found[1], 8)]), field)) for field in fields]


def etag_of(found: os.stat_result) -> str:
    """Return a text that changes when the file changes."""
    return f"{found.st_mtime_ns}-{found.st_size}-{found.st_ino}"


def refused(error: OSError) -> FileRefused:
    """Return the refusal that corresponds to an error of the file system."""
    if isinstance(error, (FileNotFoundError, NotADirectoryError)):
        return FileRefused("There is no such file.", "no-such-file")
    if isinstance(error, FileExistsError) or error.errno == errno.ENOTEMPTY:
        return FileRefused("There is a file or directory of this name: choose another name.", "exists")
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return FileRefused("The disk space of the session is used up: delete files, then try again.", "disk-full")
    if error.errno == errno.EROFS:
        return FileRefused("This folder is mounted read-only: its files cannot be changed here.", "read-only")
    if error.errno in (errno.EACCES, errno.EPERM):
        return FileRefused("The user of the session does not have the permission for this.", "not-permitted")
    if error.errno == errno.ENAMETOOLONG:
        return FileRefused("The name is longer than the file system allows.", "bad-path")
    return FileRefused("The file system refused: {reason}.", "file-refused", reason=os.strerror(error.errno or 0))


class _Upload:
    """The chunks of an upload: a length of 4 bytes and the bytes; a length of 0 ends it. Raises FileRefused."""

    def __init__(self, reader: asyncio.StreamReader) -> None:
        self._reader, self._size, self._is_over = reader, 0, False

    async def next(self) -> bytes:
        """Return the next chunk; empty at the end."""
        try:
            (length,) = struct.unpack("!I", await self._reader.readexactly(4))
            self._is_over = length == 0 or length > _LARGEST_CHUNK
            if length > _LARGEST_CHUNK:
                raise FileRefused("The upload cannot be read.", "bad-upload")
            chunk = await self._reader.readexactly(length)
        except asyncio.IncompleteReadError as error:
            self._is_over = True
            raise FileRefused("The upload broke off; nothing was written.", "upload-cut") from error
        self._size += length
        if self._size > LARGEST_FILE:
            raise FileRefused("A file may have 1 GiB at most.", "file-too-large")
        return chunk

    async def discard(self) -> None:
        """Read the rest of a refused upload, up to the largest size, while it arrives without long pauses.

        Closing a connection with unread bytes resets it, and the refusal could be lost before the agent reads it.
        """
        self._size = 0
        with contextlib.suppress(FileRefused, OSError, asyncio.TimeoutError):
            while not self._is_over:
                await asyncio.wait_for(self.next(), _PAUSE_SECONDS)


async def put(order: dict[str, Any], reader: asyncio.StreamReader) -> dict[str, Any]:
    """Write a file atomically from an upload; returns its size and etag.

    ``if_match``: the etag that the file must have. ``if_none_match``: the file must not exist; with ``resent`` it may
    exist with the same bytes, as the answer to an earlier upload was lost. Raises FileRefused after reading the rest of
    the upload.
    """
    upload = _Upload(reader)
    try:
        return await _write(order, upload)
    except OSError as error:
        await upload.discard()
        raise refused(error) from error
    except FileRefused:
        await upload.discard()
        raise


async def _write(order: dict[str, Any], upload: _Upload) -> dict[str, Any]:
    target = place_of(str(order["path"]))
    draft = target.with_name(f".{uuid4().hex}.upload")
    target.parent.mkdir(parents=True, exist_ok=True)
    if target.is_dir():
        raise FileRefused("There is a folder of this name: choose another name.", "is-a-folder")
    if not order.get("resent"):
        _check(target, order)
    try:
        size = 0
        with draft.open("xb") as file:
            while chunk := await upload.next():
                size += file.write(chunk)
        if order.get("resent") and await asyncio.to_thread(_is_there, target, draft):
            return {"size": size, "etag": etag_of(target.lstat())}
        mode = _check(target, order)
        if mode is not None:
            draft.chmod(mode)
        draft.replace(target)
        return {"size": size, "etag": etag_of(target.lstat())}
    finally:
        with contextlib.suppress(OSError):
            draft.unlink()


def _is_there(target: Path, draft: Path) -> bool:
    """Return whether the file has the bytes of the draft."""
    try:
        return stat.S_ISREG(target.lstat().st_mode) and filecmp.cmp(target, draft, shallow=False)
    except OSError:
        return False


def _check(target: Path, order: dict[str, Any]) -> int | None:
    """Return the permissions of an existing file; None if there is none. Raises FileRefused, OSError."""
    try:
        found = target.lstat()
    except FileNotFoundError:
        if order.get("if_match"):
            raise FileRefused("The file was deleted meanwhile: save it under another name.", "changed") from None
        return None
    if order.get("if_none_match"):
        raise FileRefused("There is a file of this name: choose another name.", "exists")
    if order.get("if_match") and order["if_match"] != etag_of(found):
        raise FileRefused("The file was changed meanwhile: load it again, or choose another name.", "changed")
    return stat.S_IMODE(found.st_mode) if stat.S_ISREG(found.st_mode) else None


def look(path: str) -> dict[str, Any]:
    """Return a file's size, or a folder's entries. Raises FileRefused."""
    place = place_of(path)
    try:
        found = place.stat()
        if stat.S_ISDIR(found.st_mode):
            return {"type": "folder", "entries": _entries(place)}
    except OSError as error:
        raise refused(error) from error
    if not stat.S_ISREG(found.st_mode):
        raise FileRefused("This is neither a file nor a folder.", "not-a-file")
    name = os.fsencode(place.name).decode(errors="replace")
    return {"type": "file", "name": name, "size": found.st_size, "etag": etag_of(found)}


async def get(path: str, size: int, writer: asyncio.StreamWriter) -> None:
    """Send ``size`` bytes of the file; fewer if the file has become shorter, which the receiver detects by the
    count."""
    with place_of(path).open("rb") as file:
        while size > 0 and (piece := file.read(min(_PIECE, size))):
            size -= len(piece)
            writer.write(piece)
            await writer.drain()


def _entries(place: Path) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    with os.scandir(place) as entries:
        for entry in entries:
            if len(found) >= _MOST_ENTRIES:
                break
            with contextlib.suppress(OSError):
                about = entry.stat(follow_symlinks=False)
                kind = "folder" if entry.is_dir(follow_symlinks=False) else "file"
                kind = "link" if entry.is_symlink() else kind
                name = entry.name.encode(errors="replace").decode()
                found.append({"name": name, "type": kind, "size": about.st_size, "modified_at": about.st_mtime})
    return sorted(found, key=lambda entry: str(entry["name"]))


def _decoded(path: str) -> str:
    first, slash, rest = path[len(_RAW) :].partition("/")
    return os.fsdecode(base64.b64decode(first + "=" * (-len(first) % 4), altchars=b"-_", validate=True)) + slash + rest
