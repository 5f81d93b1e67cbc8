"""Sets the user whose file rights a thread uses. A server of root thus never acts as root."""

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
    """Use the file rights of user ``uid``, and the group of the same number, in this thread. Does nothing unless root.

    Linux keeps these ids per thread; while they are set, capabilities that override file modes are inactive.
    """
    if os.geteuid() != 0 or uid == 0:
        yield
        return
    groups = os.getgroups()
    _set_groups([])
    _LIBC.setfsgid(uid)
    _LIBC.setfsuid(uid)
    try:
        if _LIBC.setfsuid(-1) != uid:  # -1 changes nothing and returns the current id
            raise PermissionError(f"cannot act as the user {uid}")
        yield
    finally:
        _LIBC.setfsuid(0)
        _LIBC.setfsgid(os.getegid())
        _set_groups(groups)


def _set_groups(groups: list[int]) -> None:
    """Set the groups of this thread only; the C library's function would change all threads."""
    if _SETGROUPS is not None:
        array = (ctypes.c_uint32 * len(groups))(*groups)
        _LIBC.syscall(_SETGROUPS, len(groups), array)
