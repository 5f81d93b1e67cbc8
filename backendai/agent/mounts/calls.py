"""Linux's mount calls on file descriptors, so that exactly the checked directory is mounted. Linux 5.12 or newer."""

from __future__ import annotations

import ctypes
import errno
import os

_OPEN_TREE, _MOVE_MOUNT, _MOUNT_SETATTR = 428, 429, 442  # the same numbers on every architecture
_CLONE, _AT_EMPTY_PATH, _F_EMPTY_PATH = 1, 0x1000, 0x04
_RDONLY, _NOSUID, _NODEV = 1, 2, 4
_PRIVATE = 1 << 18
_DETACH, _NOFOLLOW = 2, 8
_AT_FDCWD = -100
_LIBC = ctypes.CDLL(None, use_errno=True)


class _MountAttr(ctypes.Structure):
    _fields_ = [(name, ctypes.c_uint64) for name in ("attr_set", "attr_clr", "propagation", "userns_fd")]


def clone(directory: int, *, read_only: bool) -> int:
    """Return a descriptor of a new, unattached mount of an open directory, without mounts below it. Raises OSError if
    this process lacks the right to mount, or Linux the call."""
    tree = _call(_OPEN_TREE, directory, b"", _CLONE | _AT_EMPTY_PATH | os.O_CLOEXEC)
    try:
        attributes = _MountAttr(_NOSUID | _NODEV | (_RDONLY if read_only else 0), 0, _PRIVATE, 0)
        size = ctypes.sizeof(attributes)
        _call(_MOUNT_SETATTR, tree, b"", _AT_EMPTY_PATH, ctypes.byref(attributes), ctypes.c_size_t(size))
    except OSError:
        os.close(tree)
        raise
    return tree


def attach(tree: int, target: str) -> None:
    """Attach a mount of ``clone`` to a directory. Raises OSError."""
    _call(_MOVE_MOUNT, tree, b"", _AT_FDCWD, os.fsencode(target), _F_EMPTY_PATH)


def detach(target: str) -> None:
    """Detach all mounts on a directory, even busy ones; does nothing if there are none. Does not access the mounted
    file system, so that an unresponsive server cannot block it. Raises OSError."""
    while _LIBC.umount2(os.fsencode(target), _DETACH | _NOFOLLOW) == 0:
        pass
    number = ctypes.get_errno()
    if number not in (errno.EINVAL, errno.ENOENT, errno.EPERM):  # no mount, no directory, or no right to mount
        raise OSError(number, os.strerror(number), target)


def _call(number: int, *arguments: object) -> int:
    result = int(_LIBC.syscall(number, *arguments))
    if result < 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))
    return result
