"""Folder limits that the file system enforces: project quotas of ext4 and XFS.

Each folder with a limit is a project. Its directories pass the project's number on to new entries, and the file system
refuses writes beyond the project's limit. Setting limits requires root; otherwise folders are measured.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import os
import stat
import struct
from uuid import UUID

from backendai.base.paths import beneath
from backendai.base.paths.storage_layout import DATA, INCOMING, TRASH
from backendai.base.paths.tree_walk import walk_names

_LIBC = ctypes.CDLL(None, use_errno=True)
_QUOTACTL_FD = 443
_PROJECTS = 2
_GET, _SET, _STATE = ((number << 8) | _PROJECTS for number in (0x800007, 0x800008, 0x5805))
_GET_ATTRIBUTES, _SET_ATTRIBUTES = 0x801C581F, 0x401C5820
_ATTRIBUTES = "IIIII8x"  # struct fsxattr: flags, extent size, extents, project, CoW extent size
_INHERIT = 0x200
_ENFORCED = 1 << 5
_BLOCK = 1024  # bytes, the unit of limits
_LIMITS = 1 | 4  # QIF_BLIMITS and QIF_ILIMITS: the limits of space and of inodes are set
_OWN_ENTRIES = 16  # directories and files of the platform in a folder
_FIRST, _NUMBERS, _TRIES = 2**20, 2**31 - 2**20, 64


class _Quota(ctypes.Structure):
    _fields_ = [
        *((name, ctypes.c_uint64) for name in ("most", "soft", "space", "most_files", "soft_files", "files")),
        *((name, ctypes.c_uint64) for name in ("grace", "grace_files")),
        ("valid", ctypes.c_uint32),
    ]


def is_offered(directory: int) -> bool:
    """Return whether the directory's file system enforces project quotas, and this process may set them."""
    state = ctypes.create_string_buffer(256)
    if _call(directory, _STATE, 0, state) != 0:
        return False
    flags = struct.unpack_from("H", state, 2)[0]
    # Without a quota XFS returns ENOENT and ext4 zeros; another error means that limits cannot be set.
    return bool(flags & _ENFORCED) and _call(directory, _GET, _FIRST, ctypes.byref(_Quota())) in (0, errno.ENOENT)


def free_number(directory: int, folder_id: UUID) -> int:
    """Return an unused project number of this file system; usually the same for the same folder. Raises OSError."""
    for attempt in range(_TRIES):
        number = _FIRST + (folder_id.int + attempt) % _NUMBERS
        found = _Quota()
        error = _call(directory, _GET, number, ctypes.byref(found))
        if error == errno.ENOENT or (error == 0 and not (found.space or found.files or found.most)):
            return number
    raise OSError(errno.EAGAIN, "no project number is free")


def set_limit(directory: int, number: int, limit: int | None, most_entries: int | None) -> None:
    """Set a project's limits of bytes and of entries; None: no limit. Raises OSError."""
    blocks = 0 if limit is None else max(1, limit // _BLOCK)
    most_files = 0 if most_entries is None else most_entries + _OWN_ENTRIES
    wanted = _Quota(most=blocks, most_files=most_files, valid=_LIMITS)
    error = _call(directory, _SET, number, ctypes.byref(wanted))
    if error:
        raise OSError(error, os.strerror(error))


def used(directory: int, number: int) -> int:
    """Return the bytes used by a project. Raises OSError."""
    found = _Quota()
    if error := _call(directory, _GET, number, ctypes.byref(found)):
        raise OSError(error, os.strerror(error))
    return int(found.space)


def join(descriptor: int, number: int, *, is_directory: bool) -> bool:
    """Add a file or directory to a project; returns whether this changed anything. Raises OSError."""
    told = bytearray(struct.calcsize(_ATTRIBUTES))
    fcntl.ioctl(descriptor, _GET_ATTRIBUTES, told)
    flags, extent, extents, former, other = struct.unpack(_ATTRIBUTES, told)
    wanted = flags | _INHERIT if is_directory else flags
    if (former, flags) == (number, wanted):
        return False
    fcntl.ioctl(descriptor, _SET_ATTRIBUTES, struct.pack(_ATTRIBUTES, wanted, extent, extents, number, other))
    return True


def join_skeleton(base: int, number: int) -> None:
    """Add a folder's own directories to a project, so that new entries inherit it."""
    join(base, number, is_directory=True)
    for name in (DATA, INCOMING, TRASH):
        part = beneath.make_directories(base, (name.encode(),), 0o700)
        try:
            join(part, number, is_directory=True)
        finally:
            os.close(part)


def join_all(base: int, number: int) -> int:
    """Add all contents of a folder to a project; returns the number of changes.

    They are entries older than the limit, or removed from the project by their owner. Skips links and devices, which
    cannot be opened.
    """
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
        return False  # deleted meanwhile, or not accessible to its owner
    try:
        return join(descriptor, number, is_directory=stat.S_ISDIR(mode))
    except OSError:
        return False
    finally:
        os.close(descriptor)


def _call(directory: int, command: int, number: int, argument: object) -> int:
    """Return 0, or an errno."""
    ctypes.set_errno(0)
    if _LIBC.syscall(_QUOTACTL_FD, directory, command, number, argument) == 0:
        return 0
    return ctypes.get_errno() or errno.EINVAL
