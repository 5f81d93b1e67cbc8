"""Removal of whole trees, however deep they are, also while others change them. No link is followed."""

from __future__ import annotations

import contextlib
import os
import stat
import uuid
from collections.abc import Callable
from pathlib import Path

from backendai.core import beneath

_DEEPEST = 32


def remove_tree(parent: int, name: bytes, removed: Callable[[int], None] = lambda _: None) -> None:
    """Remove what bears a name in an open directory, with everything in it. Nothing there is no error."""
    try:
        mode = os.stat(name, dir_fd=parent, follow_symlinks=False).st_mode
        if not stat.S_ISDIR(mode):
            os.unlink(name, dir_fd=parent)
            return
        top = _open_whatever_its_mode(parent, name)
    except FileNotFoundError:
        return
    try:
        while _empty(top, top, 0, removed):
            pass  # what lay too deep now lies at the top
    finally:
        os.close(top)
    with contextlib.suppress(FileNotFoundError):
        os.rmdir(name, dir_fd=parent)


def _empty(top: int, here: int, depth: int, removed: Callable[[int], None]) -> bool:
    """Remove what lies in a directory; directories too deep for the stack are moved to the top. True: not done yet."""
    again = False
    with os.scandir(here) as entries:
        found = [(os.fsencode(entry.name), entry.is_dir(follow_symlinks=False)) for entry in entries]
    for name, is_directory in found:
        if not is_directory:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(name, dir_fd=here)
                removed(1)
        elif depth >= _DEEPEST:
            os.rename(name, uuid.uuid4().hex, src_dir_fd=here, dst_dir_fd=top)
            again = True
        else:
            again |= _remove_directory(top, here, name, depth, removed)
    return again


def _remove_directory(top: int, here: int, name: bytes, depth: int, removed: Callable[[int], None]) -> bool:
    try:
        below = _open_whatever_its_mode(here, name)
    except (FileNotFoundError, NotADirectoryError):
        return False
    try:
        again = _empty(top, below, depth + 1, removed)
    finally:
        os.close(below)
    with contextlib.suppress(FileNotFoundError):
        os.rmdir(name, dir_fd=here)
        removed(1)
    return again


def _open_whatever_its_mode(parent: int, name: bytes) -> int:
    """Open a directory to empty it, giving its owner the rights to it if they were taken away."""
    found = beneath.open_path(parent, (name,), follow=False)
    try:
        if (os.fstat(found).st_mode & 0o700) != 0o700:
            with contextlib.suppress(PermissionError):
                Path(f"/proc/self/fd/{found}").chmod(0o700)
        return os.open(f"/proc/self/fd/{found}", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    finally:
        os.close(found)
