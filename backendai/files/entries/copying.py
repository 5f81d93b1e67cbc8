"""Copies one regular file between open directories."""

from __future__ import annotations

import errno
import fcntl
import os
import stat
from collections.abc import Callable

from backendai.base.paths import beneath

_FICLONE = 0x40049409
_AT_ONCE = 2**26  # bytes per copy_file_range, so that progress is visible
_BUFFER = 2**20

Progress = Callable[[int], None]


def copy_file(old: int, name: bytes, new: int, new_name: bytes, written: Progress) -> None:
    """Copy a regular file with mode and time; shares its blocks if the file system supports that."""
    try:
        source = beneath.open_file(old, (name,), follow=False)
    except FileNotFoundError:
        return  # removed while the copy runs
    try:
        found = os.fstat(source)
        if _is_copied(new, new_name, found):
            written(found.st_size)
            return
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC
        target = os.open(new_name, flags, 0o600, dir_fd=new)
        try:
            _copy_bytes(source, target, found.st_size, written)
            os.fchmod(target, stat.S_IMODE(found.st_mode) & 0o777)
            os.utime(target, ns=(found.st_atime_ns, found.st_mtime_ns))
        finally:
            os.close(target)
    finally:
        os.close(source)


def _copy_bytes(source: int, target: int, size: int, written: Progress) -> None:
    try:
        fcntl.ioctl(target, _FICLONE, source)
        written(size)
        return
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EIO):
            raise
    in_the_kernel = True
    while True:
        try:
            if in_the_kernel:
                done = os.copy_file_range(source, target, _AT_ONCE)
            else:
                done = _write_all(target, os.read(source, _BUFFER))
        except OSError as error:
            if not in_the_kernel or error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EIO):
                raise
            in_the_kernel = False  # copy_file_range does not work between these file systems
            continue
        if done == 0:
            return
        written(done)


def _write_all(target: int, data: bytes) -> int:
    view = memoryview(data)
    while view:
        view = view[os.write(target, view) :]
    return len(data)


def _is_copied(new: int, name: bytes, found: os.stat_result) -> bool:
    try:
        there = os.stat(name, dir_fd=new, follow_symlinks=False)
    except FileNotFoundError:
        return False
    return (there.st_size, there.st_mtime_ns) == (found.st_size, found.st_mtime_ns) and stat.S_ISREG(there.st_mode)
