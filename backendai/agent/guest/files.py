"""Files of the session, read and written by a process of its own user: its rights and its quota are all there is."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import stat
import struct
from pathlib import Path
from typing import Any
from uuid import uuid4

LARGEST_FILE = 2**30
_LARGEST_CHUNK = 2**20
_PIECE = 256 * 1024
_MOST_ENTRIES = 10_000


class FileRefused(Exception):
    """The file cannot be had or written; ``code`` and the sentence say why."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code, self.message = code, message


def home() -> Path:
    """Return the folder that paths begin in."""
    return Path(os.environ.get("HOME") or "/")


def place_of(path: str) -> Path:
    """Return the place of a path below the home folder. Raises FileRefused."""
    parts = [part for part in path.split("/") if part not in ("", ".")]
    if ".." in parts or "\0" in path or len(path.encode(errors="replace")) > 4096:
        raise FileRefused("bad-path", "The path is not valid: name a file below the home folder, without '..'.")
    return home().joinpath(*parts)


async def put(path: str, reader: asyncio.StreamReader) -> int:
    """Write a file from chunks (4 bytes of length, then the chunk; a length of 0 ends it) whole or not at all; returns
    its size. Raises FileRefused."""
    target = place_of(path)
    draft = target.with_name(f".{uuid4().hex}.upload")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        if target.is_dir():
            raise FileRefused("is-a-folder", "There is a folder of this name: choose another name.")
        with draft.open("xb") as file:
            size = await _copy(reader, file)
        draft.replace(target)
    except OSError as error:
        raise _refused(error) from error
    finally:
        with contextlib.suppress(OSError):
            draft.unlink()
    return size


async def _copy(reader: asyncio.StreamReader, file: Any) -> int:
    size = 0
    while True:
        try:
            (length,) = struct.unpack("!I", await reader.readexactly(4))
            if length == 0:
                return size
            if length > _LARGEST_CHUNK:
                raise FileRefused("bad-upload", "The upload cannot be read.")
            file.write(await reader.readexactly(length))
        except asyncio.IncompleteReadError as error:
            raise FileRefused("upload-cut", "The upload broke off; nothing was written.") from error
        size += length
        if size > LARGEST_FILE:
            raise FileRefused("file-too-large", "A file may have 1 GiB at most.")


def look(path: str) -> dict[str, Any]:
    """Return what is at the path: a file's size, or a folder's entries. Raises FileRefused."""
    place = place_of(path)
    try:
        found = place.stat()
        if stat.S_ISDIR(found.st_mode):
            return {"type": "folder", "entries": _entries(place)}
    except OSError as error:
        raise _refused(error) from error
    if not stat.S_ISREG(found.st_mode):
        raise FileRefused("not-a-file", "This is neither a file nor a folder.")
    return {"type": "file", "name": place.name, "size": found.st_size}


async def get(path: str, size: int, writer: asyncio.StreamWriter) -> None:
    """Send ``size`` bytes of the file; fewer when it has become shorter, which the reader sees by the count."""
    with place_of(path).open("rb") as file:
        while size > 0 and (piece := file.read(min(_PIECE, size))):
            size -= len(piece)
            writer.write(piece)
            await writer.drain()


def delete(path: str) -> None:
    """Delete a file, or a folder with what it holds. Raises FileRefused."""
    place = place_of(path)
    if place == home():
        raise FileRefused("bad-path", "The home folder itself cannot be deleted: name a file in it.")
    try:
        if place.is_dir() and not place.is_symlink():
            shutil.rmtree(place)
        else:
            place.unlink()
    except OSError as error:
        raise _refused(error) from error


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


def _refused(error: OSError) -> FileRefused:
    if isinstance(error, (FileNotFoundError, NotADirectoryError)):
        return FileRefused("no-such-file", "There is no such file.")
    return FileRefused("file-refused", f"The file system refused: {os.strerror(error.errno or 0)}.")
