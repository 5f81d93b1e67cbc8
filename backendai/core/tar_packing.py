"""Streams tar archives of entries below an open directory, links included."""

from __future__ import annotations

import os
import stat
import tarfile
from collections.abc import Iterator
from dataclasses import dataclass

from backendai.core import beneath
from backendai.core.beneath import Parts
from backendai.core.tree_walk import walk_names

_CHUNK = 2**20


@dataclass(frozen=True, slots=True)
class Packed:
    """An entry of an archive: its path, its name in the archive, its size and its type."""

    parts: Parts
    name: bytes
    found: os.stat_result

    @property
    def is_directory(self) -> bool:
        """Whether the entry is a directory."""
        return stat.S_ISDIR(self.found.st_mode)

    @property
    def size(self) -> int:
        """The number of bytes after the entry's header."""
        return self.found.st_size if stat.S_ISREG(self.found.st_mode) else 0


def select(data: int, paths: list[Parts]) -> Iterator[Packed]:
    """Yield the entries at and below some paths. Below them, devices, pipes and sockets are left out. Raises
    FileNotFoundError if a path does not exist."""
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
    """Yield a tar archive; closes ``data`` at the end. A file that shrinks meanwhile is padded with zeros. An
    unreadable file is archived as a named pipe, which receivers report instead of creating."""
    try:
        for one in select(data, paths):
            try:
                content = _open(data, one)
            except FileNotFoundError:
                continue  # deleted since it was listed
            except PermissionError:
                yield _header(one, tarfile.FIFOTYPE)
                continue
            if stat.S_ISLNK(one.found.st_mode):
                yield _header(one, tarfile.SYMTYPE, target=_link_target(data, one))
                continue
            yield _header(one, tarfile.DIRTYPE if one.is_directory else tarfile.REGTYPE, size=one.size)
            if content is None:
                continue
            left = one.size
            for piece in read_content(content, one.size):
                left -= len(piece)
                yield piece
            while left:
                yield bytes(min(left, _CHUNK))
                left -= min(left, _CHUNK)
            yield bytes(-one.size % tarfile.BLOCKSIZE)
        yield bytes(2 * tarfile.BLOCKSIZE)
    finally:
        os.close(data)


def gather(stream: Iterator[bytes], size: int = _CHUNK) -> bytes:
    """Return about ``size`` further bytes of an archive; empty at its end."""
    pieces: list[bytes] = []
    collected = 0
    while collected < size and (piece := next(stream, None)) is not None:
        pieces.append(piece)
        collected += len(piece)
    return b"".join(pieces)


def content_of(data: int, one: Packed) -> Iterator[bytes]:
    """Yield the bytes of a file in pieces, at most as many as the file had when it was selected. Opens the file at once
    and closes it at the end."""
    return read_content(beneath.open_file(data, one.parts, follow=False), one.size)


def read_content(descriptor: int, size: int) -> Iterator[bytes]:
    """Yield at most ``size`` bytes of an open file; closes the file at the end."""
    try:
        while size and (piece := os.read(descriptor, min(_CHUNK, size))):
            size -= len(piece)
            yield piece
    finally:
        os.close(descriptor)


def _open(data: int, one: Packed) -> int | None:
    """Return a descriptor of a file with contents; None for an empty file or another entry. Raises OSError for an
    unreadable directory."""
    if one.is_directory:
        os.close(beneath.open_directory(data, one.parts, follow=False))
    return beneath.open_file(data, one.parts, follow=False) if one.size else None


def _header(one: Packed, kind: bytes, *, size: int = 0, target: str = "") -> bytes:
    info = tarfile.TarInfo(one.name.decode("utf-8", "surrogateescape"))
    info.mode, info.mtime, info.size = stat.S_IMODE(one.found.st_mode), int(one.found.st_mtime), size
    info.type, info.linkname = kind, target
    return info.tobuf(tarfile.PAX_FORMAT, "utf-8", "surrogateescape")


def _link_target(data: int, one: Packed) -> str:
    with beneath.parent_of(data, one.parts) as (parent, name):
        return os.readlink(name, dir_fd=parent).decode("utf-8", "surrogateescape")
