"""Archives of what lies in a folder, made while they are sent: tar with links, zip (stored) with a known length."""

from __future__ import annotations

import os
import stat
import struct
import tarfile
import time
import zlib
from collections.abc import Iterator
from dataclasses import dataclass

from backendai.core import beneath
from backendai.core.beneath import Parts
from backendai.files.entries import walk_names
from backendai.files.refusals import Refusal
from backendai.files.tree import FolderTree

MOST_IN_ZIP = 200_000  # what is in it is listed before, to know the length
_CHUNK = 2**20
_WHOLE_ZIP64 = 0xFFFFFFFF
_MOST_COUNTED = 0xFFFF
_UTF8_AND_DESCRIPTOR = 0x0808
_VERSION, _VERSION_64 = 20, 45
_UNIX = 3 << 8
_FIRST_YEAR, _LAST_YEAR = 1980, 2107


@dataclass(frozen=True, slots=True)
class Packed:
    """A file or directory that goes into an archive: where it lies, how it is called there, what it was."""

    parts: Parts
    name: bytes
    found: os.stat_result

    @property
    def is_directory(self) -> bool:
        """Whether it is a directory."""
        return stat.S_ISDIR(self.found.st_mode)

    @property
    def size(self) -> int:
        """The bytes that follow its header."""
        return self.found.st_size if stat.S_ISREG(self.found.st_mode) else 0


def select(data: int, paths: list[Parts]) -> Iterator[Packed]:
    """Give what lies at and below some paths: files, directories and links, no devices. Raises FileNotFoundError."""
    for parts in paths:
        base = len(parts) - 1 if parts else 0
        if parts:
            with beneath.parent_of(data, parts) as (parent, name):
                found = os.stat(name, dir_fd=parent, follow_symlinks=False)
            yield Packed(parts, parts[-1], found)
            if not stat.S_ISDIR(found.st_mode):
                continue
        top = beneath.open_directory(data, parts, follow=False)
        try:
            for where, parent, name in walk_names(top):
                try:
                    found = os.stat(name, dir_fd=parent, follow_symlinks=False)
                except FileNotFoundError:
                    continue
                if stat.S_IFMT(found.st_mode) in (stat.S_IFREG, stat.S_IFDIR, stat.S_IFLNK):
                    whole = (*parts, *where, name)
                    yield Packed(whole, b"/".join(whole[base:]), found)
        finally:
            os.close(top)


def tar_stream(data: int, paths: list[Parts]) -> Iterator[bytes]:
    """Give a tar archive; closes ``data`` at its end. A file that shrinks meanwhile is filled up with zeros."""
    try:
        for one in select(data, paths):
            info = tarfile.TarInfo(one.name.decode("utf-8", "surrogateescape"))
            info.mode, info.mtime, info.size = stat.S_IMODE(one.found.st_mode), int(one.found.st_mtime), one.size
            if one.is_directory:
                info.type = tarfile.DIRTYPE
            elif stat.S_ISLNK(one.found.st_mode):
                info.type, info.linkname = tarfile.SYMTYPE, _target(data, one)
            yield info.tobuf(tarfile.PAX_FORMAT, "utf-8", "surrogateescape")
            if one.size:
                yield from _content(data, one, fill=True)
                yield bytes(-one.size % tarfile.BLOCKSIZE)
        yield bytes(2 * tarfile.BLOCKSIZE)
    finally:
        os.close(data)


def list_for_zip(tree: FolderTree, paths: list[Parts]) -> list[Packed]:
    """Return what goes into a zip archive: files and directories. Refuses with 413 too many."""
    found: list[Packed] = []
    for one in select(tree.data, paths):
        if not stat.S_ISLNK(one.found.st_mode):
            found.append(one)
        if len(found) > MOST_IN_ZIP:
            message = f"There are more than {MOST_IN_ZIP} files; a zip archive takes no more. Use format=tar."
            raise Refusal(413, "too-many", message, limit=MOST_IN_ZIP)
    return found


def zip_length(listed: list[Packed]) -> int:
    """Return how many bytes ``zip_stream`` gives."""
    offset = central = 0
    for one in listed:
        central += len(_central(one, 0, offset))
        offset += len(_local(one)) + one.size + len(_descriptor(one, 0))
    return offset + central + len(_end(len(listed), central, offset))


def zip_stream(data: int, listed: list[Packed]) -> Iterator[bytes]:
    """Give a zip archive without compression; closes ``data`` at its end. Raises when a file has changed its size."""
    try:
        offset, central = 0, list[bytes]()
        for one in listed:
            head, check = _local(one), 0
            yield head
            if one.size:
                for piece in _content(data, one, fill=False):
                    check = zlib.crc32(piece, check)
                    yield piece
            tail = _descriptor(one, check)
            yield tail
            central.append(_central(one, check, offset))
            offset += len(head) + one.size + len(tail)
        directory = b"".join(central)
        yield directory
        yield _end(len(listed), len(directory), offset)
    finally:
        os.close(data)


def gather(stream: Iterator[bytes], size: int = _CHUNK) -> bytes:
    """Return the next bytes of an archive, about ``size``; none at its end."""
    pieces: list[bytes] = []
    collected = 0
    while collected < size and (piece := next(stream, None)) is not None:
        pieces.append(piece)
        collected += len(piece)
    return b"".join(pieces)


def _content(data: int, one: Packed, *, fill: bool) -> Iterator[bytes]:
    left = one.size
    descriptor = beneath.open_file(data, one.parts, follow=False)
    try:
        while left and (piece := os.read(descriptor, min(_CHUNK, left))):
            left -= len(piece)
            yield piece
    finally:
        os.close(descriptor)
    if left and not fill:
        raise Refusal(409, "changed", "A file has changed while it was packed.")
    while left:
        yield bytes(min(left, _CHUNK))
        left -= min(left, _CHUNK)


def _target(data: int, one: Packed) -> str:
    with beneath.parent_of(data, one.parts) as (parent, name):
        return os.readlink(name, dir_fd=parent).decode("utf-8", "surrogateescape")


def _name(one: Packed) -> bytes:
    return one.name + (b"/" if one.is_directory else b"")


def _is_large(one: Packed) -> bool:
    return one.size >= _WHOLE_ZIP64


def _moment(one: Packed) -> tuple[int, int]:
    at = time.gmtime(max(0, one.found.st_mtime))
    year = min(max(at.tm_year, _FIRST_YEAR), _LAST_YEAR) - _FIRST_YEAR
    return at.tm_hour << 11 | at.tm_min << 5 | at.tm_sec // 2, year << 9 | at.tm_mon << 5 | at.tm_mday


def _local(one: Packed) -> bytes:
    extra = struct.pack("<HHQQ", 1, 16, 0, 0) if _is_large(one) else b""
    size = _WHOLE_ZIP64 if extra else 0
    version = _VERSION_64 if extra else _VERSION
    fields = (b"PK\3\4", version, _UTF8_AND_DESCRIPTOR, 0, *_moment(one), 0, size, size, len(_name(one)), len(extra))
    return struct.pack("<4sHHHHHIIIHH", *fields) + _name(one) + extra


def _descriptor(one: Packed, check: int) -> bytes:
    return struct.pack("<4sIQQ" if _is_large(one) else "<4sIII", b"PK\7\x08", check, one.size, one.size)


def _central(one: Packed, check: int, offset: int) -> bytes:
    large = ([one.size, one.size] if _is_large(one) else []) + ([offset] if offset >= _WHOLE_ZIP64 else [])
    extra = struct.pack(f"<HH{len(large)}Q", 1, 8 * len(large), *large) if large else b""
    size = min(one.size, _WHOLE_ZIP64)
    version = _VERSION_64 if large else _VERSION
    name = _name(one)
    fields = (b"PK\1\2", _UNIX | version, version, _UTF8_AND_DESCRIPTOR, 0, *_moment(one), check, size, size)
    more = (len(name), len(extra), 0, 0, 0, one.found.st_mode << 16, min(offset, _WHOLE_ZIP64))
    return struct.pack("<4sHHHHHHIIIHHHHHII", *fields, *more) + name + extra


def _end(count: int, size: int, offset: int) -> bytes:
    last = struct.pack(
        "<4sHHHHIIH",
        b"PK\5\6",
        0,
        0,
        min(count, _MOST_COUNTED),
        min(count, _MOST_COUNTED),
        min(size, _WHOLE_ZIP64),
        min(offset, _WHOLE_ZIP64),
        0,
    )
    if count < _MOST_COUNTED and max(size, offset) < _WHOLE_ZIP64:
        return last
    record = struct.pack(
        "<4sQHHIIQQQQ", b"PK\6\6", 44, _UNIX | _VERSION_64, _VERSION_64, 0, 0, count, count, size, offset
    )
    return record + struct.pack("<4sIQI", b"PK\6\7", 0, offset + size, 1) + last
