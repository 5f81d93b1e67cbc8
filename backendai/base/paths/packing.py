"""Packs entries into zip and tar archives while they are read. Guests use it too: standard library, Python 3.8.

One entry that cannot be packed spoils no archive: it is left out, and named at the end. Nothing is listed beforehand,
so that programs may change files meanwhile; hence the length of an archive is not known in advance.
"""

from __future__ import annotations

import io
import os
import stat
import tarfile
import time
import zipfile
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

NOTE = "NOT INCLUDED"
_CHUNK = 2**20
_EARLIEST, _LATEST = 315532800.0, 4354819198.0  # 1980 to 2107: the times in zip archives
_TAR_TIMES = (-(2.0**31), 2.0**40)
_LARGE = 2**31 - 1  # bytes of a file in a zip archive without extended records
_MOST_HOLES = 2**32  # bytes of zeros in an archive for holes of files, which cost their owner nothing
_MOST_PARTS = 10_000  # of a file between holes; the rest counts as content
_MOST_NAMED = 10_000
_NOTE_STATUS = os.stat_result((stat.S_IFREG | 0o644, 0, 0, 1, 0, 0, 0, 0, 0, 0))


class LeftOut(Exception):
    """An entry is not packed; the text says why."""


class Entry(NamedTuple):
    """An entry to pack: its name in the archive and its status. ``read`` returns the descriptor of a file, the target
    of a link, and None for a directory; raises OSError or LeftOut."""

    name: bytes
    found: os.stat_result
    read: Callable[[], int | bytes | None]


def free_name(name: str, taken: set[str]) -> str:
    """Return the name, numbered as ``name (2).txt`` if it is taken, and take it."""
    stem, dot, ending = name.rpartition(".") if name.rfind(".") > name.rfind("/") + 1 else (name, "", "")
    number, free = 1, name
    while free in taken:
        number += 1
        free = f"{stem} ({number}){dot}{ending}"
    taken.add(free)
    return free


class Tar:
    """Makes the parts of a tar archive. ``pipes``: entries that are left out become named pipes, which the file server
    reports instead of creating; else a text names them."""

    has_links = True

    def __init__(self, *, pipes: bool = False) -> None:
        self._pipes, self._size = pipes, 0

    def name(self, name: bytes) -> str:
        """Return the name in the archive."""
        return name.decode("utf-8", "surrogateescape")

    def begin(self, name: str, found: os.stat_result, size: int, target: bytes | None = None) -> bytes:
        """Return what comes before the bytes of an entry."""
        kind = tarfile.DIRTYPE if stat.S_ISDIR(found.st_mode) else tarfile.REGTYPE
        self._size = size
        return self._header(name, found, kind if target is None else tarfile.SYMTYPE, size, target or b"")

    def content(self, piece: bytes) -> bytes:
        """Return a piece of a file as it is in the archive."""
        return piece

    def end(self, missing: int) -> Iterator[bytes]:
        """Yield what comes after the bytes of an entry; zeros for those that are missing, as the file has shrunk."""
        while missing:
            yield bytes(min(missing, _CHUNK))
            missing -= min(missing, _CHUNK)
        yield bytes(-self._size % tarfile.BLOCKSIZE)

    def left_out(self, name: str, found: os.stat_result) -> bytes | None:
        """Return what names an entry that is left out; None if the text does."""
        return self._header(name, found, tarfile.FIFOTYPE, 0, b"") if self._pipes else None

    def close(self) -> bytes:
        """Return the archive's end."""
        return bytes(2 * tarfile.BLOCKSIZE)

    def _header(self, name: str, found: os.stat_result, kind: bytes, size: int, target: bytes) -> bytes:
        info = tarfile.TarInfo(name)
        info.mode, info.mtime, info.size = stat.S_IMODE(found.st_mode), int(_within(found.st_mtime, *_TAR_TIMES)), size
        info.type, info.linkname = kind, target.decode("utf-8", "surrogateescape")
        return info.tobuf(tarfile.PAX_FORMAT, "utf-8", "surrogateescape")


class _Pieces(io.RawIOBase):
    """A write-only file, not seekable, that keeps what was written until it is taken."""

    def __init__(self) -> None:
        self._pieces: list[bytes] = []

    def writable(self) -> bool:
        """Return True."""
        return True

    def write(self, data: Any) -> int:
        self._pieces.append(bytes(data))
        return len(data)

    def take(self) -> bytes:
        """Return and drop what was written."""
        pieces, self._pieces = self._pieces, []
        return b"".join(pieces)


class Zip:
    """Makes the parts of a zip archive without compression or links."""

    has_links = False

    def __init__(self) -> None:
        self._out = _Pieces()
        self._taken: set[str] = set()
        self._archive = zipfile.ZipFile(self._out, "w")
        self._file: Any = None

    def name(self, name: bytes) -> str:
        """Return the name in the archive, numbered if another one looks the same in UTF-8."""
        return free_name(name.decode(errors="replace"), self._taken)

    def begin(self, name: str, found: os.stat_result, size: int, target: bytes | None = None) -> bytes:
        """Return what comes before the bytes of an entry."""
        is_directory = stat.S_ISDIR(found.st_mode)
        about = zipfile.ZipInfo(name + "/" * is_directory, time.gmtime(_within(found.st_mtime, _EARLIEST, _LATEST))[:6])
        about.external_attr = (found.st_mode & 0xFFFF) << 16 | 0x10 * is_directory
        self._file = self._archive.open(about, "w", force_zip64=size >= _LARGE)
        return self._out.take()

    def content(self, piece: bytes) -> bytes:
        """Return a piece of a file as it is in the archive."""
        self._file.write(piece)
        return self._out.take()

    def end(self, missing: int) -> Iterator[bytes]:
        """Yield what comes after the bytes of an entry."""
        self._file.close()
        yield self._out.take()

    def left_out(self, name: str, found: os.stat_result) -> bytes | None:
        """Return None: the text names what is left out."""
        return None

    def close(self) -> bytes:
        """Return the archive's end."""
        self._archive.close()
        return self._out.take()


def pack(entries: Iterable[Entry], archive: Tar | Zip) -> Iterator[bytes]:
    """Yield an archive of entries. Raises OSError, which names the entry, if a file cannot be read to its end."""
    left: list[str] = []
    notes: set[str] = set()
    holes = _MOST_HOLES
    for entry in entries:
        name = archive.name(entry.name)
        if name.startswith(NOTE):
            notes.add(name)
        try:
            content, size, found_holes = _opened(entry, archive, holes)
        except FileNotFoundError:
            continue  # deleted since it was listed
        except (OSError, LeftOut) as error:
            if (piece := archive.left_out(name, entry.found)) is not None:
                yield piece
            elif len(left) < _MOST_NAMED:
                left.append(f"{name}: {getattr(error, 'strerror', None) or error}")
            continue
        holes -= found_holes
        yield from _packed(archive, name, entry.found, content, size)
    if left:
        text = "\n".join(["These entries are not in this archive:", *left, ""]).encode("utf-8", "replace")
        yield archive.begin(free_name(f"{NOTE}.txt", notes), _NOTE_STATUS, len(text))
        yield archive.content(text)
        yield from archive.end(0)
    yield archive.close()


def _opened(entry: Entry, archive: Tar | Zip, holes: int) -> tuple[int | bytes | None, int, int]:
    """Return the content of an entry, the size of a file, and the bytes of its holes. Raises OSError, LeftOut."""
    content = entry.read()
    if isinstance(content, bytes) and not archive.has_links:
        raise LeftOut("a link")
    if not isinstance(content, int):
        return content, 0, 0
    found = os.fstat(content)
    if (empty := _bytes_in_holes(content, found)) <= holes:
        return content, found.st_size, empty
    os.close(content)
    raise LeftOut(f"its holes would become {empty} bytes of zeros")


def _packed(
    archive: Tar | Zip, name: str, found: os.stat_result, content: int | bytes | None, size: int
) -> Iterator[bytes]:
    try:
        yield archive.begin(name, found, size, content if isinstance(content, bytes) else None)
        missing = size
        for piece in read_content(content, size) if isinstance(content, int) else ():
            missing -= len(piece)
            yield archive.content(piece)
        yield from archive.end(missing)
    except OSError as error:
        raise OSError(error.errno, error.strerror, name) from error
    finally:
        if isinstance(content, int):
            os.close(content)


def read_content(descriptor: int, size: int) -> Iterator[bytes]:
    """Yield at most ``size`` bytes of an open file."""
    while size and (piece := os.read(descriptor, min(_CHUNK, size))):
        size -= len(piece)
        yield piece


def gather(stream: Iterator[bytes], size: int = _CHUNK) -> bytes:
    """Return about ``size`` further bytes of an archive; empty at its end."""
    pieces: list[bytes] = []
    collected = 0
    while collected < size and (piece := next(stream, None)) is not None:
        pieces.append(piece)
        collected += len(piece)
    return b"".join(pieces)


def _bytes_in_holes(descriptor: int, found: os.stat_result) -> int:
    """Return how many bytes of a file lie in holes. Compressed files have fewer blocks than bytes, and no holes."""
    if found.st_blocks * 512 >= found.st_size:
        return 0
    at, content = 0, 0
    try:
        for _ in range(_MOST_PARTS):
            start = os.lseek(descriptor, at, os.SEEK_DATA)
            at = os.lseek(descriptor, start, os.SEEK_HOLE)
            content += at - start
        content += found.st_size - at
    except OSError:  # no content after this place
        pass
    finally:
        os.lseek(descriptor, 0, os.SEEK_SET)
    return found.st_size - content


def _within(moment: float, earliest: float, latest: float) -> float:
    return min(max(moment, earliest), latest)
