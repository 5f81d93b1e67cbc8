"""Renames entries, and numbers those whose names are taken: ``model (2).pt``; for a directory ``data.v2 (2)``."""

from __future__ import annotations

import ctypes
import errno
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from backendai.base.paths import beneath

_LONGEST = 255  # bytes of a name
_LAST_NUMBER = 10_000
_RENAME_NOREPLACE = 1
_LIBC = ctypes.CDLL(None, use_errno=True)


def numbered(name: bytes, number: int, *, is_directory: bool) -> bytes:
    """Return the name with a number: before the ending of a file's name, at the end of a directory's.

    A name that would be too long for the file system loses the end of its stem.
    """
    dot = -1 if is_directory else name.rfind(b".")
    cut = dot if dot > 0 else len(name)
    mark, ending = b" (%d)" % number, name[cut:]
    stem = name[: min(cut, max(1, _LONGEST - len(mark) - len(ending)))]
    if len(stem) < cut:
        stem = stem.decode(errors="ignore").encode() or stem
    return stem + mark + ending


def names_for(name: bytes, *, is_directory: bool) -> Iterator[bytes]:
    """Yield the name, then its numbered forms. Raises FileExistsError after the last number."""
    yield name
    for number in range(2, _LAST_NUMBER + 1):
        yield numbered(name, number, is_directory=is_directory)
    raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST))


def rename_beside(source: int, name: bytes, target: int, wanted: bytes, *, is_directory: bool) -> bytes:
    """Rename between two open directories to the first free form of a name, and return it."""
    for free in names_for(wanted, is_directory=is_directory):
        with suppress(FileExistsError):
            rename(source, name, target, free, replace=False)
            return free
    raise AssertionError("names_for ends with an error")


def rename(source: int, name: bytes, target: int, new_name: bytes, *, replace: bool) -> None:
    """Rename between two open directories. Raises FileExistsError if the target exists, unless ``replace``."""
    try:
        _rename(source, name, target, new_name, replace=replace)
    except PermissionError:
        found = os.stat(name, dir_fd=source, follow_symlinks=False)
        if not stat.S_ISDIR(found.st_mode) or found.st_mode & stat.S_IWUSR:
            raise
        with _writable(source, name):
            _rename(source, name, target, new_name, replace=replace)


@contextmanager
def _writable(parent: int, name: bytes) -> Iterator[None]:
    """Give the owner of a directory the right to write it, which Linux requires to move it elsewhere."""
    directory = beneath.open_path(parent, (name,), follow=False)
    place, mode = f"/proc/self/fd/{directory}", stat.S_IMODE(os.fstat(directory).st_mode)
    try:
        os.chmod(place, mode | stat.S_IWUSR)  # noqa: PTH101
        try:
            yield
        finally:
            os.chmod(place, mode)  # noqa: PTH101
    finally:
        os.close(directory)


def _rename(source: int, name: bytes, target: int, new_name: bytes, *, replace: bool) -> None:
    if replace:
        os.rename(name, new_name, src_dir_fd=source, dst_dir_fd=target)
        return
    if _LIBC.renameat2(source, name, target, new_name, _RENAME_NOREPLACE) == 0:
        return
    number = ctypes.get_errno()
    if number not in (errno.EINVAL, errno.ENOSYS):
        raise OSError(number, os.strerror(number), os.fsdecode(new_name))
    _rename_without_the_kernels_help(source, name, target, new_name)


def _rename_without_the_kernels_help(source: int, name: bytes, target: int, new_name: bytes) -> None:
    """Rename without replacing where RENAME_NOREPLACE is missing, as on some network file systems. A file gets a hard
    link, which never replaces; for other entries the target is checked first."""
    if stat.S_ISREG(os.stat(name, dir_fd=source, follow_symlinks=False).st_mode):
        os.link(name, new_name, src_dir_fd=source, dst_dir_fd=target, follow_symlinks=False)
        os.unlink(name, dir_fd=source)
        return
    try:
        os.stat(new_name, dir_fd=target, follow_symlinks=False)
    except FileNotFoundError:
        # A directory can replace only an empty directory.
        os.rename(name, new_name, src_dir_fd=source, dst_dir_fd=target)
        return
    raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), os.fsdecode(new_name))
