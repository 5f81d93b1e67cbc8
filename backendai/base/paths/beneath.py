"""Opens user-supplied paths below a directory's descriptor without leaving that directory.

Absolute paths, ``..``, links that lead out and magic links are rejected: by the Linux kernel (openat2), or on older
ones by opening one component after the other. Links inside the directory are followed on request only. Only regular
files and directories are ever opened.
"""

from __future__ import annotations

import ctypes
import errno
import os
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache

from backendai.base.core.errors import UserError

Parts = tuple[bytes, ...]
Opener = Callable[[int, Parts, int, bool], int]

LONGEST_NAME, LONGEST_PATH, MOST_PARTS = 255, 4000, 256
_OPENAT2, _NO_MAGICLINKS, _NO_SYMLINKS, _BENEATH = 437, 0x02, 0x04, 0x08
_AGAIN = 16  # tries, as a look-up fails while the entry is being renamed: EAGAIN, or EXDEV if it left the directory
_MOST_LINKS = 40
_LIBC = ctypes.CDLL(None, use_errno=True)
_DIRECTORY = os.O_PATH | os.O_DIRECTORY


class PathRefused(UserError):
    """The path is not allowed: malformed, too long, outside the folder, or neither a file nor a directory."""

    code = "path-refused"


class _OpenHow(ctypes.Structure):
    _fields_ = [("flags", ctypes.c_uint64), ("mode", ctypes.c_uint64), ("resolve", ctypes.c_uint64)]


def parse(path: str | bytes) -> Parts:
    """Return the components of a relative path; () for the folder itself. Raises PathRefused."""
    try:
        raw = path.encode() if isinstance(path, str) else path
    except UnicodeEncodeError as error:
        raise PathRefused("The path is not valid UTF-8; name it by its bytes.", field="path") from error
    if raw.startswith(b"/"):
        raise PathRefused("The path is absolute; name it relative to the folder.", field="path")
    if b"\0" in raw:
        raise PathRefused("The path holds a NUL character.", field="path")
    if len(raw) > LONGEST_PATH:
        raise PathRefused(
            "The path has {number} bytes; {longest_path} are allowed.",
            number=len(raw),
            longest_path=LONGEST_PATH,
            field="path",
        )
    parts = tuple(part for part in raw.split(b"/") if part not in (b"", b"."))
    if b".." in parts:
        raise PathRefused("The path holds '..'; name it from the top of the folder.", field="path")
    if len(parts) > MOST_PARTS:
        raise PathRefused(
            "The path has {number} levels; {most_parts} are allowed.",
            number=len(parts),
            most_parts=MOST_PARTS,
            field="path",
        )
    if longest := max((len(part) for part in parts if len(part) > LONGEST_NAME), default=0):
        raise PathRefused(
            "A name in the path has {longest} bytes; {longest_name} are allowed.",
            longest=longest,
            longest_name=LONGEST_NAME,
            field="path",
        )
    return parts


def open_by_openat2(directory: int, parts: Parts, flags: int, follow: bool) -> int:
    """Return the descriptor of an entry, opened with one system call (Linux 5.6 and newer). Raises OSError."""
    resolve = _BENEATH | _NO_MAGICLINKS | (0 if follow else _NO_SYMLINKS)
    how = _OpenHow(flags | os.O_CLOEXEC, 0, resolve)
    path = b"/".join(parts) or b"."
    for _ in range(_AGAIN):
        descriptor = int(_LIBC.syscall(_OPENAT2, directory, path, ctypes.byref(how), ctypes.sizeof(how)))
        if descriptor >= 0:
            return descriptor
        if (number := ctypes.get_errno()) not in (errno.EAGAIN, errno.EINTR, errno.EXDEV):
            break
    raise OSError(number, os.strerror(number), os.fsdecode(path))


def open_by_walk(directory: int, parts: Parts, flags: int, follow: bool) -> int:
    """Return the descriptor of an entry, opened component by component without openat2. This function follows symbolic
    links itself. Raises OSError, also for a path that leaves ``directory``."""
    opened = [os.open(b".", _DIRECTORY | os.O_CLOEXEC, dir_fd=directory)]
    waiting, links = list(reversed(parts)), 0
    try:
        while waiting:
            part = waiting.pop()
            if part == b"..":
                if len(opened) == 1:
                    raise OSError(errno.EXDEV, os.strerror(errno.EXDEV))
                os.close(opened.pop())
                continue
            found = os.open(part, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=opened[-1])
            mode = os.fstat(found).st_mode
            if stat.S_ISLNK(mode):
                try:
                    target = os.readlink(b"", dir_fd=found)
                finally:
                    os.close(found)
                links += 1
                waiting += reversed(_link_parts(target, follow, links))
            elif stat.S_ISDIR(mode) or not waiting:
                opened.append(found)
            else:
                os.close(found)
                raise OSError(errno.ENOTDIR, os.strerror(errno.ENOTDIR))
        return _reopen(opened[-1], flags)
    finally:
        for descriptor in opened:
            os.close(descriptor)


def _link_parts(target: bytes, follow: bool, links: int) -> list[bytes]:
    if not follow or links > _MOST_LINKS:
        raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))
    if target.startswith(b"/"):
        raise OSError(errno.EXDEV, os.strerror(errno.EXDEV))
    return [part for part in target.split(b"/") if part not in (b"", b".")]


@cache
def has_openat2() -> bool:
    """Return whether Linux (and a sandbox around this process) allows openat2."""
    root = os.open("/", _DIRECTORY)
    try:
        os.close(open_by_openat2(root, (), _DIRECTORY, False))
    except OSError:
        return False
    finally:
        os.close(root)
    return True


def opener() -> Opener:
    """Return the function that opens paths on this machine: by openat2 if allowed, else component by component."""
    return open_by_openat2 if has_openat2() else open_by_walk


def open_path(directory: int, parts: Parts, *, follow: bool) -> int:
    """Return a descriptor (O_PATH) of an entry of any kind but a link. Raises OSError."""
    return opener()(directory, parts, os.O_PATH, follow)


def open_directory(directory: int, parts: Parts, *, follow: bool) -> int:
    """Return the descriptor of a directory below another. Raises OSError."""
    found = opener()(directory, parts, _DIRECTORY, follow)
    try:
        return _reopen(found, os.O_RDONLY | os.O_DIRECTORY)
    finally:
        os.close(found)


def open_file(directory: int, parts: Parts, *, follow: bool, flags: int = os.O_RDONLY) -> int:
    """Return the descriptor of a regular file. A directory raises OSError and any other entry PathRefused, before it is
    opened."""
    found = open_path(directory, parts, follow=follow)
    try:
        mode = os.fstat(found).st_mode
        if stat.S_ISDIR(mode):
            raise OSError(errno.EISDIR, os.strerror(errno.EISDIR))
        if not stat.S_ISREG(mode):
            raise PathRefused("This is neither a file nor a directory.", field="path", code="not-a-file")
        return _reopen(found, flags | os.O_NONBLOCK)
    finally:
        os.close(found)


@contextmanager
def parent_of(directory: int, parts: Parts) -> Iterator[tuple[int, bytes]]:
    """Yield the descriptor of the directory that contains a path, and the path's last name. Follows links in the path
    of the directory only. Raises PathRefused for the folder itself, and OSError: a PermissionError names the directory
    if its owner may not write it."""
    if not parts:
        raise PathRefused("This would change the folder itself; name something in it.", field="path")
    parent = open_directory(directory, parts[:-1], follow=True)
    try:
        yield parent, parts[-1]
    except PermissionError as error:
        if parts[1:] and not os.fstat(parent).st_mode & stat.S_IWUSR:
            raise PermissionError(error.errno, error.strerror, b"/".join(parts[:-1])) from error
        raise
    finally:
        os.close(parent)


def followed(directory: int, parts: Parts) -> Parts:
    """Return the path without links to what is at a path, so that a content is written where it is read; the path
    itself if nothing is there. Raises OSError for a link that leads out."""
    try:
        found = open_path(directory, parts, follow=True)
    except FileNotFoundError:
        return parts
    try:
        top, place = (os.fsencode(os.readlink(f"/proc/self/fd/{one}")) for one in (directory, found))  # noqa: PTH115
    finally:
        os.close(found)
    return parse(place[len(top) + 1 :]) if place.startswith(top + b"/") else ()


def names_in(directory: int) -> list[bytes]:
    """Return the names in an open directory."""
    with os.scandir(directory) as entries:
        return [os.fsencode(entry.name) for entry in entries]


def exists(parent: int, name: bytes) -> bool:
    """Return whether an open directory has an entry of this name, broken links included."""
    try:
        os.stat(name, dir_fd=parent, follow_symlinks=False)
    except FileNotFoundError:
        return False
    return True


def make_directories(
    directory: int,
    parts: Parts,
    mode: int = 0o755,
    *,
    follow: bool = False,
    before: Callable[[Parts], None] = lambda _: None,
) -> int:
    """Return the descriptor of a directory below another. Creates the directory and its parents if missing, and calls
    ``before`` with each path. Raises OSError."""
    missing = len(parts)
    while True:
        try:
            here = open_directory(directory, parts[:missing], follow=follow)
            break
        except FileNotFoundError:
            if not missing:
                raise
            missing -= 1
    for number in range(missing, len(parts)):
        try:
            before(parts[: number + 1])
            make_directory(here, parts[number], mode)
            below = open_directory(here, (parts[number],), follow=False)
        finally:
            os.close(here)
        here = below
    return here


def make_directory(parent: int, name: bytes, mode: int = 0o755, *, exist_ok: bool = True) -> None:
    """Create one directory. Raises FileExistsError if an entry of this name exists, unless ``exist_ok``."""
    try:
        os.mkdir(name, mode, dir_fd=parent)
    except FileExistsError:
        if not exist_ok:
            raise


def sync_all(directory: int) -> None:
    """Write a directory's whole file system to disk. Cheaper than syncing many files one by one. Raises OSError."""
    if _LIBC.syncfs(directory):
        raise OSError(ctypes.get_errno(), "cannot sync")


def _reopen(descriptor: int, flags: int) -> int:
    """Return a second descriptor of an open file, independent of its path."""
    if flags & os.O_PATH:
        return os.dup(descriptor)
    return os.open(f"/proc/self/fd/{descriptor}", flags | os.O_CLOEXEC | os.O_NOCTTY)
