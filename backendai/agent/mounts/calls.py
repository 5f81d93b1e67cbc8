"""The mount calls of the kernel that take descriptors: what was looked at is what is mounted (Linux 5.12 and newer)."""

from __future__ import annotations

import ctypes
import errno
import os

_OPEN_TREE, _MOVE_MOUNT, _MOUNT_SETATTR = 428, 429, 442  # on every architecture
_CLONE, _AT_EMPTY_PATH, _F_EMPTY_PATH = 1, 0x1000, 0x04
_RDONLY, _NOSUID, _NODEV = 1, 2, 4
_PRIVATE = 1 << 18
_DETACH, _NOFOLLOW = 2, 8
_AT_FDCWD = -100
_LIBC = ctypes.CDLL(None, use_errno=True)


class _MountAttr(ctypes.Structure):
    _fields_ = [(name, ctypes.c_uint64) for name in ("attr_set", "attr_clr", "propagation", "userns_fd")]


def clone(directory: int, *, read_only: bool) -> int:
    """Return the descriptor of a new mount of an open directory, without what is mounted below it and attached nowhere
    yet. Raises OSError where this process may not mount, or the kernel cannot."""
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
    """Detach everything that is mounted on a directory, however busy; nothing there is success. It never looks at what
    is mounted, so that a silent server does not hold it up. Raises OSError."""
    while _LIBC.umount2(os.fsencode(target), _DETACH | _NOFOLLOW) == 0:
        pass
    number = ctypes.get_errno()
    if number not in (errno.EINVAL, errno.ENOENT, errno.EPERM):  # no mount, gone, or never ours to make
        raise OSError(number, os.strerror(number), target)


def _call(number: int, *arguments: object) -> int:
    result = int(_LIBC.syscall(number, *arguments))
    if result < 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))
    return result
