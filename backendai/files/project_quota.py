"""Limits of folders that the file system itself enforces: project quotas of ext4 and XFS.

Each folder with a limit is a project: its directories hand the number down to what is made in them, and the file system
refuses what exceeds the limit of the number. Setting limits takes root; what cannot be set is measured instead.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import os
import stat
import struct
from uuid import UUID

from backendai.core import beneath
from backendai.core.storage_layout import DATA, INCOMING, TRASH
from backendai.core.tree_walk import walk_names

_LIBC = ctypes.CDLL(None, use_errno=True)
_QUOTACTL_FD = 443
_PROJECTS = 2
_GET, _SET, _STATE = ((number << 8) | _PROJECTS for number in (0x800007, 0x800008, 0x5805))
_GET_ATTRIBUTES, _SET_ATTRIBUTES = 0x801C581F, 0x401C5820
_ATTRIBUTES = "IIIII8x"  # of struct fsxattr: flags, extent size, extents, project, another extent size
_INHERIT = 0x200
_ENFORCED = 1 << 5
_BLOCK = 1024  # of a limit
_LIMITS = 1  # of struct if_dqblk: the limits of space are those that are meant
_FIRST, _NUMBERS, _TRIES = 2**20, 2**31 - 2**20, 64


class _Quota(ctypes.Structure):
    _fields_ = [
        *((name, ctypes.c_uint64) for name in ("most", "soft", "space", "most_files", "soft_files", "files")),
        *((name, ctypes.c_uint64) for name in ("grace", "grace_files")),
        ("valid", ctypes.c_uint32),
    ]


def is_offered(directory: int) -> bool:
    """Return whether the file system of a directory enforces limits of projects, and this process may set them."""
    state = ctypes.create_string_buffer(256)
    if _call(directory, _STATE, 0, state) != 0:
        return False
    flags = struct.unpack_from("H", state, 2)[0]
    # A project without a quota is none (XFS) or all zeros (ext4); who may not set limits is refused.
    return bool(flags & _ENFORCED) and _call(directory, _GET, _FIRST, ctypes.byref(_Quota())) in (0, errno.ENOENT)


def free_number(directory: int, folder_id: UUID) -> int:
    """Return a project that nothing on this file system belongs to, the same for the same folder if it can be."""
    for attempt in range(_TRIES):
        number = _FIRST + (folder_id.int + attempt) % _NUMBERS
        found = _Quota()
        error = _call(directory, _GET, number, ctypes.byref(found))
        if error == errno.ENOENT or (error == 0 and not (found.space or found.files or found.most)):
            return number
    raise OSError(errno.EAGAIN, "no project number is free")


def set_limit(directory: int, number: int, limit: int | None) -> None:
    """Hold a project to so many bytes, None: to none. Raises OSError."""
    blocks = 0 if limit is None else max(1, limit // _BLOCK)
    error = _call(directory, _SET, number, ctypes.byref(_Quota(most=blocks, valid=_LIMITS)))
    if error:
        raise OSError(error, os.strerror(error))


def used(directory: int, number: int) -> int:
    """Return how many bytes belong to a project. Raises OSError."""
    found = _Quota()
    if error := _call(directory, _GET, number, ctypes.byref(found)):
        raise OSError(error, os.strerror(error))
    return int(found.space)


def join(descriptor: int, number: int, *, is_directory: bool) -> bool:
    """Let a file or directory belong to a project; returns whether it did not yet. Raises OSError."""
    told = bytearray(struct.calcsize(_ATTRIBUTES))
    fcntl.ioctl(descriptor, _GET_ATTRIBUTES, told)
    flags, extent, extents, former, other = struct.unpack(_ATTRIBUTES, told)
    wanted = flags | _INHERIT if is_directory else flags
    if (former, flags) == (number, wanted):
        return False
    fcntl.ioctl(descriptor, _SET_ATTRIBUTES, struct.pack(_ATTRIBUTES, wanted, extent, extents, number, other))
    return True


def join_skeleton(base: int, number: int) -> None:
    """Let a folder's own directories belong to a project, so that whatever is made from now on does."""
    join(base, number, is_directory=True)
    for name in (DATA, INCOMING, TRASH):
        part = beneath.make_directories(base, (name.encode(),), 0o700)
        try:
            join(part, number, is_directory=True)
        finally:
            os.close(part)


def join_all(base: int, number: int) -> int:
    """Let everything in a folder belong to a project; returns how much did not yet. What was there before the folder
    had a limit, or was taken out by its owner, comes in so. Links and devices, which cannot be opened, are left out."""
    changed = 0
    for name in (DATA, INCOMING, TRASH):
        top = beneath.make_directories(base, (name.encode(),), 0o700)
        try:
            changed += join(top, number, is_directory=True)
            changed += sum(_join_one(parent, entry, number) for _, parent, entry in walk_names(top))
        finally:
            os.close(top)
    return changed


def _join_one(parent: int, name: bytes, number: int) -> bool:
    try:
        mode = os.stat(name, dir_fd=parent, follow_symlinks=False).st_mode
        if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):
            return False
        descriptor = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=parent)
    except OSError:
        return False  # gone meanwhile, or closed to its own owner
    try:
        return join(descriptor, number, is_directory=stat.S_ISDIR(mode))
    except OSError:
        return False
    finally:
        os.close(descriptor)


def _call(directory: int, command: int, number: int, argument: object) -> int:
    """Return 0, or the number of the error."""
    ctypes.set_errno(0)
    if _LIBC.syscall(_QUOTACTL_FD, directory, command, number, argument) == 0:
        return 0
    return ctypes.get_errno() or errno.EINVAL
