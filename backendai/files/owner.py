"""Sets the user with whose rights a thread uses files. As root, it uses them as their owner and never as root."""

from __future__ import annotations

import ctypes
import os
import platform
from collections.abc import Iterator
from contextlib import contextmanager

_LIBC = ctypes.CDLL(None, use_errno=True)
_SETGROUPS = {"x86_64": 116, "aarch64": 159}.get(platform.machine())


@contextmanager
def acting_as(uid: int) -> Iterator[None]:
    """Give this thread the file rights of user ``uid`` and the group of the same number, for the length of the
    context. Does nothing unless root.

    The kernel keeps these ids per thread; with them go the capabilities that override the modes of files.
    """
    if os.geteuid() != 0 or uid == 0:
        yield
        return
    groups = os.getgroups()
    _set_groups([])
    _LIBC.setfsgid(uid)
    _LIBC.setfsuid(uid)
    try:
        if _LIBC.setfsuid(-1) != uid:  # -1 changes nothing and returns what it is
            raise PermissionError(f"cannot act as the user {uid}")
        yield
    finally:
        _LIBC.setfsuid(0)
        _LIBC.setfsgid(os.getegid())
        _set_groups(groups)


def _set_groups(groups: list[int]) -> None:
    """Set the groups of this thread alone: the C library's function would change every thread."""
    if _SETGROUPS is not None:
        array = (ctypes.c_uint32 * len(groups))(*groups)
        _LIBC.syscall(_SETGROUPS, len(groups), array)
