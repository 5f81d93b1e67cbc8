"""Packs entries of a folder into a zip stream without compression, so that its length is known in advance."""

from __future__ import annotations

import os
import stat
import struct
import time
import zlib
from collections.abc import Iterator

from backendai.core.beneath import Parts
from backendai.core.tar_packing import Packed, content_of, select
from backendai.files.refusals import Refusal
from backendai.files.tree import FolderTree

MOST_IN_ZIP = 200_000  # a limit, as all entries are listed first to determine the length
_WHOLE_ZIP64 = 0xFFFFFFFF
_MOST_COUNTED = 0xFFFF
_UTF8_AND_DESCRIPTOR = 0x0808
_VERSION, _VERSION_64 = 20, 45
_UNIX = 3 << 8
_FIRST_YEAR, _LAST_YEAR = 1980, 2107


def list_for_zip(tree: FolderTree, paths: list[Parts]) -> list[Packed]:
    """Return the files and directories of a zip archive. Refuses too many with 413."""
    found: list[Packed] = []
    for one in select(tree.data, paths):
        if not stat.S_ISLNK(one.found.st_mode):
            found.append(one)
        if len(found) > MOST_IN_ZIP:
            message = f"There are more than {MOST_IN_ZIP} files; a zip archive takes no more. Use format=tar."
            raise Refusal(413, "too-many", message, limit=MOST_IN_ZIP)
    return found


def zip_length(listed: list[Packed]) -> int:
    """Return the length in bytes of the archive that ``zip_stream`` yields."""
    offset = central = 0
    for one in listed:
        central += len(_central(one, 0, offset))
        offset += len(_local(one)) + one.size + len(_descriptor(one, 0))
    return offset + central + len(_end(len(listed), central, offset))


def zip_stream(data: int, listed: list[Packed]) -> Iterator[bytes]:
    """Yield a zip archive without compression; close ``data`` at its end. Raises if a file has changed its size."""
    try:
        offset, central = 0, list[bytes]()
        for one in listed:
            head, check = _local(one), 0
            yield head
            if one.size:
                left = one.size
                for piece in content_of(data, one):
                    check, left = zlib.crc32(piece, check), left - len(piece)
                    yield piece
                if left:
                    raise Refusal(409, "changed", "A file has changed while it was packed.")
            tail = _descriptor(one, check)
            yield tail
            central.append(_central(one, check, offset))
            offset += len(head) + one.size + len(tail)
        directory = b"".join(central)
        yield directory
        yield _end(len(listed), len(directory), offset)
    finally:
        os.close(data)


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
