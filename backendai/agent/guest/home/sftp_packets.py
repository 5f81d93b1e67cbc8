"""Reads and writes packets of SFTP version 3."""

from __future__ import annotations

import os
import stat
import struct
import time
from typing import Any

LARGEST_PACKET = 256 * 1024
LARGEST_READ = 255 * 1024
STATUS, HANDLE, DATA, NAME, ATTRS, EXTENDED_REPLY = 101, 102, 103, 104, 105, 201
OK, EOF, NO_SUCH_FILE, DENIED, FAILURE, BAD_MESSAGE, UNSUPPORTED = 0, 1, 2, 3, 4, 5, 8
SIZE, OWNER, MODE, TIMES = 1, 2, 4, 8


class Failed(Exception):
    """The request fails with this status."""

    def __init__(self, code: int, text: str) -> None:
        super().__init__(text)
        self.code, self.text = code, text


class Packet:
    """The unread rest of a packet."""

    def __init__(self, content: bytes) -> None:
        self._content, self._at = content, 0

    def take(self, size: int) -> bytes:
        """Return the next ``size`` bytes. Raises Failed."""
        taken = self._content[self._at : self._at + size]
        if len(taken) < size:
            raise Failed(BAD_MESSAGE, "The packet is too short.")
        self._at += size
        return taken

    def number(self) -> int:
        """Return the next 4-byte integer."""
        return int.from_bytes(self.take(4), "big")

    def large(self) -> int:
        """Return the next 8-byte integer."""
        return int.from_bytes(self.take(8), "big")

    def text(self) -> bytes:
        return self.take(self.number())

    def attributes(self) -> dict[int, Any]:
        """Return the given attributes by their flags."""
        flags = self.number()
        found: dict[int, Any] = {}
        if flags & SIZE:
            found[SIZE] = self.large()
        if flags & OWNER:
            found[OWNER] = (self.number(), self.number())
        if flags & MODE:
            found[MODE] = self.number()
        if flags & TIMES:
            found[TIMES] = (self.number(), self.number())
        return found


def number(value: int) -> bytes:
    """Return an integer as 4 bytes."""
    return value.to_bytes(4, "big")


def text(value: bytes) -> bytes:
    """Return a string with its length prefix."""
    return number(len(value)) + value


def status(code: int, words: str) -> bytes:
    return bytes((STATUS,)) + number(code) + text(words.encode(errors="replace")) + text(b"")


def done() -> bytes:
    """Return the status of a successful request."""
    return status(OK, "Success")


def attributes_packet(about: os.stat_result) -> bytes:
    """Return a packet with one file's attributes."""
    return bytes((ATTRS,)) + _packed(about)


def _packed(about: os.stat_result) -> bytes:
    times = [int(value) & 0xFFFFFFFF for value in (about.st_atime, about.st_mtime)]
    return struct.pack(
        ">IQIIIII", SIZE | OWNER | MODE | TIMES, about.st_size, about.st_uid, about.st_gid, about.st_mode, *times
    )


def names_packet(found: list[tuple[bytes, os.stat_result]]) -> bytes:
    """Return a packet with names and attributes."""
    parts = [text(name) + text(_line(name, about)) + _packed(about) for name, about in found]
    return bytes((NAME,)) + number(len(found)) + b"".join(parts)


def _line(name: bytes, about: os.stat_result) -> bytes:
    """Return a line like ``ls -l``, which clients display unchanged."""
    when = time.strftime("%b %d %Y", time.localtime(about.st_mtime))
    facts = (stat.filemode(about.st_mode), about.st_nlink, about.st_uid, about.st_gid, about.st_size, when)
    return "{} {:4} {:<8} {:<8} {:12} {} ".format(*facts).encode() + name


def space_packet(about: os.statvfs_result) -> bytes:
    """Return a packet with the sizes of a file system."""
    flags = (1 if about.f_flag & os.ST_RDONLY else 0) | (2 if about.f_flag & os.ST_NOSUID else 0)
    numbers = (about.f_bsize, about.f_frsize, about.f_blocks, about.f_bfree, about.f_bavail, about.f_files)
    more = (about.f_ffree, about.f_favail, about.f_fsid, flags, about.f_namemax)
    return bytes((EXTENDED_REPLY,)) + struct.pack(">11Q", *numbers, *more)
