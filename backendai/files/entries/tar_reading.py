"""Reads a tar archive from an untrusted stream, member by member, in bounded memory."""

from __future__ import annotations

import asyncio
import math
import tarfile
from collections.abc import AsyncIterator
from dataclasses import dataclass

from aiohttp.streams import StreamReader

from backendai.files.refusals import Refusal

MOST_MEMBERS = 500_000
LARGEST_MEMBER = 2**44
MOST_EXTENDED, MOST_EXTENDED_BYTES = 16, 64 * 1024  # extended headers of one member, and bytes in all of them
MOST_RECORDS = 256  # of one extended header: 10,000 fit into it, and took the event loop for 28 ms with each member
_BLOCK = tarfile.BLOCKSIZE
_EARLIEST, _LATEST = -(2.0**31), 2.0**40  # seconds; what file systems support
_ALL_MODES = 0o7777
_PIECE = 2**20
_KINDS = {
    tarfile.REGTYPE: "file",
    tarfile.AREGTYPE: "file",
    tarfile.CONTTYPE: "file",
    tarfile.DIRTYPE: "directory",
    tarfile.SYMTYPE: "link",
    tarfile.LNKTYPE: "hard-link",
}
_LONG_NAME, _LONG_LINK = tarfile.GNUTYPE_LONGNAME, tarfile.GNUTYPE_LONGLINK
_PAX_FOR_ALL = tarfile.XGLTYPE
_EXTENDED = (_LONG_NAME, _LONG_LINK, tarfile.XHDTYPE, tarfile.SOLARIS_XHDTYPE, _PAX_FOR_ALL)
_USED_RECORDS, _SPARSE = ("path", "linkpath", "size", "mtime"), "GNU.sparse"
_LONGEST_LENGTH = 8  # digits and a space: more than any header holds


@dataclass(frozen=True, slots=True)
class Member:
    """A member's header: its numbers are within limits, its paths are not validated. ``mtime``: None if it is no
    number."""

    name: bytes
    kind: str
    size: int
    mode: int
    mtime: float | None
    target: bytes


class TarReader:
    """Yields members. Between two members, ``pieces`` yields the bytes; unread bytes are skipped."""

    def __init__(self, stream: StreamReader) -> None:
        self._stream = stream
        self._left = 0  # unread bytes of the member, and of its last block's padding
        self._filling = 0

    async def members(self) -> AsyncIterator[Member]:
        """Yield every member to the archive's end. Refuses an invalid, truncated or too large archive."""
        seen = 0
        while (member := await self._next()) is not None:
            seen += 1
            if seen > MOST_MEMBERS:
                message = f"The archive has more than {MOST_MEMBERS} members; send several."
                raise Refusal(413, "too-many", message, limit=MOST_MEMBERS)
            yield member
            async for _ in self.pieces():
                pass
        async for _ in self._stream.iter_any():
            pass  # skip the zeros at the archive's end

    async def pieces(self) -> AsyncIterator[bytes]:
        """Yield the bytes of the last member."""
        while self._left:
            data = await self._stream.read(min(_PIECE, self._left))
            if not data:
                raise _cut_off()
            self._left -= len(data)
            yield data
        filling, self._filling = self._filling, 0
        await self._exactly(filling)

    async def _next(self) -> Member | None:
        more: dict[str, bytes] = {}
        headers = size = 0
        while True:
            header = await self._exactly(_BLOCK)
            if not header.strip(b"\0"):
                return None
            try:
                info = tarfile.TarInfo.frombuf(header, "utf-8", "surrogateescape")
            except tarfile.HeaderError as error:
                message = "This is not a tar archive (compressed ones are not taken)."
                raise Refusal(422, "bad-archive", message) from error
            if info.type not in _EXTENDED:
                return self._described(info, more)
            headers, size = headers + 1, size + info.size
            if info.size < 0 or size > MOST_EXTENDED_BYTES or headers > MOST_EXTENDED:
                message = (
                    f"A member of the archive has more than {MOST_EXTENDED} extended headers, or more than "
                    f"{MOST_EXTENDED_BYTES} bytes in them. Make it without extended attributes."
                )
                raise Refusal(422, "bad-archive", message, limit=MOST_EXTENDED_BYTES)
            data = await self._exactly(info.size)
            await self._exactly(-info.size % _BLOCK)
            if info.type in (_LONG_NAME, _LONG_LINK):
                more["path" if info.type == _LONG_NAME else "linkpath"] = data.rstrip(b"\0")
            elif info.type != _PAX_FOR_ALL:
                more |= _records(data)

    def _described(self, info: tarfile.TarInfo, more: dict[str, bytes]) -> Member:
        if info.type == tarfile.GNUTYPE_SPARSE or _SPARSE in more:
            raise Refusal(422, "bad-archive", "Archives with sparse files are not taken: make it without --sparse.")
        size = _number(more.get("size", info.size))
        if size is None or not 0 <= size <= LARGEST_MEMBER or size != int(size):
            raise Refusal(422, "bad-archive", "A member of the archive has an impossible size.")
        mtime = _number(more.get("mtime", info.mtime))
        member = Member(
            more.get("path", _bytes(info.name)),
            _KINDS.get(info.type, "other"),
            int(size),
            info.mode & _ALL_MODES,
            None if mtime is None else min(max(mtime, _EARLIEST), _LATEST),
            more.get("linkpath", _bytes(info.linkname)),
        )
        # A hard link's header may contain its target's size, although no bytes follow.
        self._left = member.size if member.kind in ("file", "other") else 0
        self._filling = -self._left % _BLOCK
        return member

    async def _exactly(self, size: int) -> bytes:
        try:
            return await self._stream.readexactly(size)
        except asyncio.IncompleteReadError as error:
            raise _cut_off() from error


def _cut_off() -> Refusal:
    return Refusal(400, "cut-off", "The archive is cut off.")


def _records(data: bytes) -> dict[str, bytes]:
    """Return the used records of an extended header: each consists of its own length, a key and a value."""
    found: dict[str, bytes] = {}
    at, end, number = 0, len(data.rstrip(b"\0")), 0
    while at < end:
        number += 1
        length, space, _ = data[at : at + _LONGEST_LENGTH].partition(b" ")
        following = at + int(length) if space and length.isdigit() else 0
        if not at + len(length) + 3 <= following <= len(data) or number > MOST_RECORDS:
            raise Refusal(422, "bad-archive", "A header in the archive cannot be read.")
        key, _, value = data[at + len(length) + 1 : following - 1].partition(b"=")
        name = key.decode(errors="replace")
        if name in _USED_RECORDS or name.startswith(_SPARSE):
            found[_SPARSE if name.startswith(_SPARSE) else name] = value
        at = following
    return found


def _number(text: bytes | float) -> float | None:
    """Return a finite number of a header; None for anything else."""
    try:
        number = float(text)
    except (ValueError, OverflowError):
        return None
    return number if math.isfinite(number) else None


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")
