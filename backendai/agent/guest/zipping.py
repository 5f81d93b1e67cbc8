"""Sends files and directories of the home folder as one ZIP archive while creating it.

The archive is sent in chunks of a 4-byte length and the bytes, as in uploads. A length of 0 marks the end, so that a
partial archive is not taken for a complete one.
"""

from __future__ import annotations

import asyncio
import io
import json
import os
import stat
import struct
import time
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from backendai.agent.guest.files import FileRefused, home, place_of, refused
from backendai.agent.guest.mounted import mounts_below

_PIECE = 256 * 1024
_MOST_PATHS = 1000
_EPOCH = 315532800.0  # 1980: the earliest time in ZIP archives
_LEFT_OUT = "NOT INCLUDED.txt"


async def send_zip(order: dict[str, Any], writer: asyncio.StreamWriter) -> None:
    """Send the files at these paths, without mounted folders, links and special files. Raises FileRefused."""
    paths = order["paths"]
    if not isinstance(paths, list) or not 1 <= len(paths) <= _MOST_PATHS:
        raise FileRefused("Name 1 to {most} files or directories.", "bad-path", most=_MOST_PATHS)
    places = [place_of(str(path)) for path in paths]
    try:
        for place in places:
            os.lstat(place)
    except OSError as error:
        raise refused(error) from error
    loop = asyncio.get_running_loop()

    async def pass_on(piece: bytes) -> None:
        writer.write(struct.pack("!I", len(piece)) + piece)
        await writer.drain()

    def send(piece: bytes) -> None:
        asyncio.run_coroutine_threadsafe(pass_on(piece), loop).result()

    writer.write(json.dumps({"type": "zip"}).encode() + b"\n")
    await loop.run_in_executor(None, _write, places, send)
    writer.write(bytes(4))


class _Sending(io.RawIOBase):
    """A write-only file, not seekable, that sends its content."""

    def __init__(self, send: Callable[[bytes], None]) -> None:
        self._send = send

    def writable(self) -> bool:
        """Return True."""
        return True

    def write(self, data: Any) -> int:
        self._send(bytes(data))
        return len(data)


def _write(places: list[Path], send: Callable[[bytes], None]) -> None:
    out = io.BufferedWriter(_Sending(send), _PIECE)
    missing: list[str] = []
    with zipfile.ZipFile(out, "w") as archive:
        for place in places:
            for path in _below(place, missing):
                name = os.fsencode(path.relative_to(_top(place))).decode(errors="replace")
                try:
                    _add(archive, path, name)
                except PermissionError:
                    missing.append(name)
        if missing:
            archive.writestr(_LEFT_OUT, "These files cannot be read by the session:\n" + "\n".join(missing) + "\n")
    out.flush()


def _top(place: Path) -> Path:
    return place if place == home() else place.parent


def _below(place: Path, missing: list[str]) -> Iterator[Path]:
    """Yield a path and all paths below it, without mounted folders. Adds unreadable directories to ``missing``."""
    if place != home():
        yield place
    if place.is_symlink() or not place.is_dir():
        return
    mounted = {Path(point) for point in mounts_below(place)}
    for where, directories, names in os.walk(place, onerror=lambda error: missing.append(str(error.filename))):
        directories[:] = sorted(name for name in directories if Path(os.path.realpath(where), name) not in mounted)
        yield from (Path(where, name) for name in [*directories, *sorted(names)])


def _add(archive: zipfile.ZipFile, path: Path, name: str) -> None:
    """Add a file or directory; skips a missing one."""
    try:
        found = path.lstat()
        when = time.localtime(max(found.st_mtime, _EPOCH + 86400))[:6]
        if stat.S_ISDIR(found.st_mode):
            archive.writestr(zipfile.ZipInfo(name + "/", when), b"")
        elif stat.S_ISREG(found.st_mode):
            about = zipfile.ZipInfo(name, when)
            about.external_attr = (found.st_mode & 0xFFFF) << 16
            with path.open("rb") as file:
                _copy(file, archive, about)
    except FileNotFoundError:
        return


def _copy(file: Any, archive: zipfile.ZipFile, about: zipfile.ZipInfo) -> None:
    with archive.open(about, "w", force_zip64=True) as into:
        while piece := file.read(_PIECE):
            into.write(piece)
