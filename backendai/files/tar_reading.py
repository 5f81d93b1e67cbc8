"""Reads a tar archive from an untrusted stream, member by member, in bounded memory."""

from __future__ import annotations

import asyncio
import tarfile
from collections.abc import AsyncIterator
from dataclasses import dataclass, replace

from aiohttp.streams import StreamReader

from backendai.files.refusals import Refusal

MOST_MEMBERS = 500_000
LARGEST_MEMBER = 2**44
_BLOCK = tarfile.BLOCKSIZE
_LARGEST_HEADER = 64 * 1024
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
_PAX, _PAX_OF_SUN, _PAX_FOR_ALL = tarfile.XHDTYPE, tarfile.SOLARIS_XHDTYPE, tarfile.XGLTYPE


@dataclass(frozen=True, slots=True)
class Member:
    """A member's header; only its size is validated."""

    name: bytes
    kind: str
    size: int
    mode: int
    mtime: float
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
        while True:
            header = await self._exactly(_BLOCK)
            if not header.strip(b"\0"):
                return None
            try:
                info = tarfile.TarInfo.frombuf(header, "utf-8", "surrogateescape")
            except tarfile.HeaderError as error:
                message = "This is not a tar archive (compressed ones are not taken)."
                raise Refusal(422, "bad-archive", message) from error
            if not 0 <= info.size <= LARGEST_MEMBER:
                raise Refusal(422, "bad-archive", "A member of the archive has an impossible size.")
            if info.type in (_LONG_NAME, _LONG_LINK):
                more["path" if info.type == _LONG_NAME else "linkpath"] = (await self._small(info)).rstrip(b"\0")
            elif info.type in (_PAX, _PAX_OF_SUN):
                more |= _records(await self._small(info))
            elif info.type == _PAX_FOR_ALL:
                await self._small(info)
            else:
                return self._described(info, more)

    def _described(self, info: tarfile.TarInfo, more: dict[str, bytes]) -> Member:
        if info.type == tarfile.GNUTYPE_SPARSE or any(key.startswith("GNU.sparse") for key in more):
            raise Refusal(422, "bad-archive", "Archives with sparse files are not taken: make it without --sparse.")
        member = Member(
            _bytes(info.name), _KINDS.get(info.type, "other"), info.size, info.mode, info.mtime, _bytes(info.linkname)
        )
        if "path" in more:
            member = replace(member, name=more["path"])
        if "linkpath" in more:
            member = replace(member, target=more["linkpath"])
        try:
            member = replace(
                member, size=int(more.get("size", member.size)), mtime=float(more.get("mtime", member.mtime))
            )
        except ValueError as error:
            raise Refusal(422, "bad-archive", "A number in the archive is none.") from error
        if not 0 <= member.size <= LARGEST_MEMBER:
            raise Refusal(422, "bad-archive", "A member of the archive has an impossible size.")
        # A hard link's header may contain its target's size, although no bytes follow.
        self._left = member.size if member.kind in ("file", "other") else 0
        self._filling = -self._left % _BLOCK
        return member

    async def _small(self, info: tarfile.TarInfo) -> bytes:
        if info.size > _LARGEST_HEADER:
            raise Refusal(422, "bad-archive", f"A header in the archive has more than {_LARGEST_HEADER} bytes.")
        data = await self._exactly(info.size)
        await self._exactly(-info.size % _BLOCK)
        return data

    async def _exactly(self, size: int) -> bytes:
        try:
            return await self._stream.readexactly(size)
        except asyncio.IncompleteReadError as error:
            raise _cut_off() from error


def _cut_off() -> Refusal:
    return Refusal(400, "cut-off", "The archive is cut off.")


def _records(data: bytes) -> dict[str, bytes]:
    """Return the records of an extended header: each consists of its own length, a key and a value."""
    found: dict[str, bytes] = {}
    while data.strip(b"\0"):
        length, space, _ = data.partition(b" ")
        if not space or not length.isdigit() or not len(length) + 3 <= int(length[:9]) <= len(data):
            raise Refusal(422, "bad-archive", "A header in the archive cannot be read.")
        record, data = data[: int(length)], data[int(length) :]
        key, _, value = record[len(length) + 1 : -1].partition(b"=")
        found[key.decode(errors="replace")] = value
    return found


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")
