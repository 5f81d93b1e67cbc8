"""An SFTP server (version 3, with the extensions that clients use) for images without one.

It reads requests from standard input and answers them in order on standard output, with the rights of its user; only
the operating system checks permissions.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
import struct
import sys
from collections.abc import Callable
from typing import Any

from backendai.agent.guest.home.sftp_packets import (
    BAD_MESSAGE,
    DATA,
    DENIED,
    EOF,
    EXTENDED_REPLY,
    FAILURE,
    HANDLE,
    LARGEST_PACKET,
    LARGEST_READ,
    MODE,
    NAME,
    NO_SUCH_FILE,
    OWNER,
    SIZE,
    TIMES,
    UNSUPPORTED,
    Failed,
    Packet,
    attributes_packet,
    done,
    names_packet,
    number,
    space_packet,
    status,
    text,
)

_MOST_HANDLES = 1024
_NAMES_AT_ONCE = 100
_INIT, _VERSION, _OPEN, _EXTENDED = 1, 2, 3, 200
_READ, _WRITE, _APPEND, _CREATE, _TRUNCATE, _EXCLUSIVE = 1, 2, 4, 8, 16, 32
_CODES = {errno.ENOENT: NO_SUCH_FILE, errno.ENOTDIR: NO_SUCH_FILE, errno.EACCES: DENIED, errno.EPERM: DENIED}
_EXTENSIONS = (
    (b"posix-rename@openssh.com", b"1"),
    (b"statvfs@openssh.com", b"2"),
    (b"fstatvfs@openssh.com", b"2"),
    (b"hardlink@openssh.com", b"1"),
    (b"fsync@openssh.com", b"1"),
    (b"lsetstat@openssh.com", b"1"),
    (b"limits@openssh.com", b"1"),
)


class Server:
    """Answers requests. ``files``: open files and directories by handle."""

    def __init__(self) -> None:
        self._files: dict[bytes, Any] = {}
        self._next = 0

    def answer(self, content: bytes) -> bytes:
        """Return the answer to one packet, without its length prefix."""
        packet = Packet(content)
        kind = packet.take(1)[0]
        if kind == _INIT:
            extensions = b"".join(text(name) + text(value) for name, value in _EXTENSIONS)
            return bytes((_VERSION,)) + number(3) + extensions
        about = packet.take(4)
        try:
            if kind not in self._REQUESTS:
                raise Failed(UNSUPPORTED, "This request is not supported.")
            answer = self._REQUESTS[kind](self, packet)
        except Failed as error:
            answer = status(error.code, error.text)
        except OSError as error:
            answer = status(_CODES.get(error.errno or 0, FAILURE), os.strerror(error.errno or 0))
        except (ValueError, OverflowError) as error:
            answer = status(BAD_MESSAGE, str(error))
        return answer[:1] + about + answer[1:]

    def _open(self, packet: Packet) -> bytes:
        path, asked, told = packet.text(), packet.number(), packet.attributes()
        flags = (os.O_RDWR if asked & _READ else os.O_WRONLY) if asked & _WRITE else os.O_RDONLY
        for bit, flag in ((_CREATE, os.O_CREAT), (_TRUNCATE, os.O_TRUNC), (_EXCLUSIVE, os.O_EXCL)):
            flags |= flag if asked & bit else 0
        flags |= os.O_APPEND if asked & _APPEND else 0
        return self._keep(lambda: os.open(path, flags | os.O_CLOEXEC, told.get(MODE, 0o666) & 0o7777))

    def _open_directory(self, packet: Packet) -> bytes:
        path = packet.text()
        return self._keep(lambda: (path, os.scandir(path)))

    def _keep(self, opened: Callable[[], Any]) -> bytes:
        if len(self._files) >= _MOST_HANDLES:
            raise Failed(FAILURE, "Too many files are open.")
        self._next += 1
        handle = number(self._next)
        self._files[handle] = opened()
        return bytes((HANDLE,)) + text(handle)

    def _close(self, packet: Packet) -> bytes:
        one = self._files.pop(packet.text(), None)
        if one is None:
            raise Failed(FAILURE, "There is no such handle.")
        if isinstance(one, int):
            os.close(one)
        else:
            one[1].close()
        return done()

    def _file(self, packet: Packet) -> int:
        one = self._files.get(packet.text())
        if not isinstance(one, int):
            raise Failed(FAILURE, "There is no such open file.")
        return one

    def _read(self, packet: Packet) -> bytes:
        file, offset, size = self._file(packet), packet.large(), packet.number()
        data = os.pread(file, min(size, LARGEST_READ), offset)
        if not data and size:
            raise Failed(EOF, "End of file")
        return bytes((DATA,)) + text(data)

    def _write(self, packet: Packet) -> bytes:
        file, offset, data = self._file(packet), packet.large(), memoryview(packet.text())
        while data:
            count = os.pwrite(file, data, offset)
            data, offset = data[count:], offset + count
        return done()

    def _list(self, packet: Packet) -> bytes:
        one = self._files.get(packet.text())
        if not isinstance(one, tuple):
            raise Failed(FAILURE, "There is no such open directory.")
        found = []
        for entry in one[1]:
            with contextlib.suppress(OSError):  # deleted meanwhile
                about = entry.stat(follow_symlinks=False)
                found.append((os.fsencode(entry.name), about))
            if len(found) >= _NAMES_AT_ONCE:
                break
        if not found:
            raise Failed(EOF, "End of directory")
        return names_packet(found)

    def _stat(self, packet: Packet) -> bytes:
        return attributes_packet(os.stat(packet.text()))

    def _lstat(self, packet: Packet) -> bytes:
        return attributes_packet(os.lstat(packet.text()))

    def _fstat(self, packet: Packet) -> bytes:
        return attributes_packet(os.fstat(self._file(packet)))

    def _set(self, packet: Packet) -> bytes:
        return _change(packet.text(), packet.attributes())

    def _fset(self, packet: Packet) -> bytes:
        return _change(self._file(packet), packet.attributes())

    def _lset(self, packet: Packet) -> bytes:
        path, told = packet.text(), packet.attributes()
        if TIMES in told:
            os.utime(path, told[TIMES], follow_symlinks=False)
        if OWNER in told:
            os.chown(path, *told[OWNER], follow_symlinks=False)
        if MODE in told and not stat.S_ISLNK(os.lstat(path).st_mode):
            os.chmod(path, told[MODE] & 0o7777)
        return done()

    def _remove(self, packet: Packet) -> bytes:
        os.unlink(packet.text())
        return done()

    def _make_directory(self, packet: Packet) -> bytes:
        path, told = packet.text(), packet.attributes()
        os.mkdir(path, told.get(MODE, 0o777) & 0o7777)
        return done()

    def _remove_directory(self, packet: Packet) -> bytes:
        os.rmdir(packet.text())
        return done()

    def _real_path(self, packet: Packet) -> bytes:
        path = os.path.realpath(packet.text() or b".")
        return bytes((NAME,)) + number(1) + text(path) + text(path) + number(0)

    def _rename(self, packet: Packet) -> bytes:
        source, target = packet.text(), packet.text()
        if os.path.lexists(target):
            raise Failed(FAILURE, "The target exists.")
        os.rename(source, target)
        return done()

    def _rename_over(self, packet: Packet) -> bytes:
        os.rename(packet.text(), packet.text())
        return done()

    def _read_link(self, packet: Packet) -> bytes:
        target = os.readlink(packet.text())
        return bytes((NAME,)) + number(1) + text(target) + text(target) + number(0)

    def _link(self, packet: Packet) -> bytes:
        os.symlink(packet.text(), packet.text())  # arguments in the order of OpenSSH: target, then link
        return done()

    def _hard_link(self, packet: Packet) -> bytes:
        os.link(packet.text(), packet.text(), follow_symlinks=False)
        return done()

    def _sync(self, packet: Packet) -> bytes:
        os.fsync(self._file(packet))
        return done()

    def _space(self, packet: Packet) -> bytes:
        return space_packet(os.statvfs(packet.text()))

    def _file_space(self, packet: Packet) -> bytes:
        return space_packet(os.fstatvfs(self._file(packet)))

    def _limits(self, packet: Packet) -> bytes:
        limits = (LARGEST_PACKET, LARGEST_READ, LARGEST_READ, _MOST_HANDLES)
        return bytes((EXTENDED_REPLY,)) + struct.pack(">4Q", *limits)

    def _extended(self, packet: Packet) -> bytes:
        name = packet.text()
        if name not in self._EXTENDED:
            raise Failed(UNSUPPORTED, "This extension is not supported.")
        return self._EXTENDED[name](self, packet)

    _REQUESTS: dict[int, Callable[[Server, Packet], bytes]] = {
        _OPEN: _open, 4: _close, 5: _read, 6: _write, 7: _lstat, 8: _fstat, 9: _set, 10: _fset, 11: _open_directory,
        12: _list, 13: _remove, 14: _make_directory, 15: _remove_directory, 16: _real_path, 17: _stat, 18: _rename,
        19: _read_link, 20: _link, _EXTENDED: _extended,
    }  # fmt: skip
    _EXTENDED: dict[bytes, Callable[[Server, Packet], bytes]] = {
        b"posix-rename@openssh.com": _rename_over, b"statvfs@openssh.com": _space, b"fstatvfs@openssh.com": _file_space,
        b"hardlink@openssh.com": _hard_link, b"fsync@openssh.com": _sync, b"lsetstat@openssh.com": _lset,
        b"limits@openssh.com": _limits,
    }  # fmt: skip


def serve_files(source: int = 0, sink: int = 1) -> None:
    """Answer requests until the client's end or an invalid packet."""
    server, waiting = Server(), bytearray()
    while data := os.read(source, 2**20):
        waiting += data
        answers: list[bytes] = []
        while (content := _next(waiting)) is not None:
            answer = server.answer(content)
            answers += (number(len(answer)), answer)
        _write_all(sink, b"".join(answers))


def _next(waiting: bytearray) -> bytes | None:
    """Remove and return the next packet if it is complete; else None."""
    size = int.from_bytes(waiting[:4], "big")
    if len(waiting) >= 4 and not 0 < size <= LARGEST_PACKET + 1024:
        sys.exit(1)
    if len(waiting) < 4 + size or len(waiting) < 4:
        return None
    content = bytes(waiting[4 : 4 + size])
    del waiting[: 4 + size]
    return content


def _write_all(sink: int, data: bytes) -> None:
    rest = memoryview(data)
    while rest:
        rest = rest[os.write(sink, rest) :]


def _change(where: Any, told: dict[int, Any]) -> bytes:
    if SIZE in told:
        os.truncate(where, told[SIZE])
    if MODE in told:
        os.chmod(where, told[MODE] & 0o7777)
    if TIMES in told:
        os.utime(where, told[TIMES])
    if OWNER in told:
        os.chown(where, *told[OWNER])
    return done()
