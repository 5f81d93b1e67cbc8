"""Sends files and directories of the home folder as one ZIP archive while creating it.

The archive is sent in chunks of a 4-byte length and the bytes, as in uploads. A length of 0 marks the end, so that a
partial archive is not taken for a complete one.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import stat
import struct
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from backendai.agent.guest.home.contents import FileRefused, home, mounts_below, place_of, refused
from backendai.base.paths.packing import Entry, LeftOut, Zip, free_name, gather, pack

_PIECE, _LARGEST_CHUNK = 256 * 1024, 2**20
_MOST_PATHS = 1000


async def send_zip(order: dict[str, Any], writer: asyncio.StreamWriter) -> None:
    """Send the files at these paths, without mounted folders, links and special files, which the archive names. Raises
    FileRefused."""
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


def _write(places: list[Path], send: Callable[[bytes], None]) -> None:
    stream = pack(_entries(places), Zip())
    while piece := gather(stream, _PIECE):
        for start in range(0, len(piece), _LARGEST_CHUNK):
            send(piece[start : start + _LARGEST_CHUNK])


def _entries(places: list[Path]) -> Iterator[Entry]:
    """Yield the entries at and below some paths; a mounted folder below them only to be named."""
    tops: set[str] = set()
    for place in dict.fromkeys(places):
        top = "" if place == home() else free_name(place.name, tops)
        if top:
            yield _entry(place, top)
        if place.is_symlink() or not place.is_dir():
            continue
        mounted = {Path(point) for point in mounts_below(place)}
        for where, directories, names in os.walk(place):
            real, below = os.path.realpath(where), os.path.relpath(where, place)
            for name in [*sorted(directories), *sorted(names)]:
                with contextlib.suppress(FileNotFoundError):
                    packed = str(Path(top, below, name))
                    yield _entry(Path(where, name), packed, is_mounted=Path(real, name) in mounted)
            directories[:] = sorted(name for name in directories if Path(real, name) not in mounted)


def _entry(path: Path, name: str, *, is_mounted: bool = False) -> Entry:
    found = path.lstat()

    def read() -> int | bytes | None:
        if is_mounted:
            raise LeftOut("a mounted folder")
        if stat.S_ISDIR(found.st_mode):
            next(path.iterdir(), None)  # raises if it cannot be read
            return None
        if stat.S_ISLNK(found.st_mode):
            return os.fsencode(os.readlink(path))  # noqa: PTH115 (Path.readlink came with Python 3.9)
        if not stat.S_ISREG(found.st_mode):
            raise LeftOut("a device, pipe or socket")
        return os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)

    return Entry(os.fsencode(name), found, read)
