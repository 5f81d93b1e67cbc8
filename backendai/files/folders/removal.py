"""Removes trees of any depth, even while other processes change them. Follows no links."""

from __future__ import annotations

import contextlib
import errno
import os
import stat
import uuid
from collections.abc import Callable, Iterable
from pathlib import Path

from backendai.base.paths import beneath
from backendai.files.refusals import Refusal

_DEEPEST = 32
_IN_USE = (errno.EBUSY, errno.ENOTEMPTY, errno.ESTALE)


def remove_tree(parent: int, name: bytes, removed: Callable[[int], None] = lambda _: None) -> None:
    """Remove an entry of an open directory with all its contents. Does nothing if it is missing.

    Entries in use are skipped; raises a Refusal for them after all others are removed.
    """
    kept: list[bytes] = []
    try:
        mode = os.stat(name, dir_fd=parent, follow_symlinks=False).st_mode
        if stat.S_ISDIR(mode):
            top = _open_whatever_its_mode(parent, name)
            try:
                while _empty(top, top, 0, removed, kept):
                    kept.clear()  # deep directories are now at the top
            finally:
                os.close(top)
        _remove_one(parent, name, stat.S_ISDIR(mode), kept)
    except FileNotFoundError:
        return
    if kept:
        message = f"Programs still use files here, such as {kept[0].decode(errors='replace')}. Try again later."
        raise Refusal(503, "still-in-use", message)


def remove_trees(parent: int, names: Iterable[bytes], removed: Callable[[int], None] = lambda _: None) -> None:
    """Remove several entries, continuing after failures. Raises the first Refusal at the end."""
    refusals = []
    for name in names:
        try:
            remove_tree(parent, name, removed)
        except Refusal as refusal:
            refusals.append(refusal)
    if refusals:
        raise refusals[0]


def _empty(top: int, here: int, depth: int, removed: Callable[[int], None], kept: list[bytes]) -> bool:
    """Remove the contents of a directory; returns whether it must be called again, as deep directories were moved to
    the top."""
    again = False
    with os.scandir(here) as entries:
        found = [(os.fsencode(entry.name), entry.is_dir(follow_symlinks=False)) for entry in entries]
    for name, is_directory in found:
        if is_directory and depth >= _DEEPEST:
            os.rename(name, uuid.uuid4().hex, src_dir_fd=here, dst_dir_fd=top)
            again = True
            continue
        if is_directory:
            again |= _empty_directory(top, here, name, depth, removed, kept)
        removed(_remove_one(here, name, is_directory, kept))
    return again


def _empty_directory(
    top: int, here: int, name: bytes, depth: int, removed: Callable[[int], None], kept: list[bytes]
) -> bool:
    try:
        below = _open_whatever_its_mode(here, name)
    except (FileNotFoundError, NotADirectoryError):
        return False
    try:
        return _empty(top, below, depth + 1, removed, kept)
    finally:
        os.close(below)


def _remove_one(parent: int, name: bytes, is_directory: bool, kept: list[bytes]) -> bool:
    """Remove one entry; returns whether it was removed. A deleted file that is open on a network file system becomes
    ``.nfs…``; neither it nor its directory can be deleted before it is closed."""
    try:
        (os.rmdir if is_directory else os.unlink)(name, dir_fd=parent)
    except FileNotFoundError:
        return False
    except OSError as error:
        if error.errno not in _IN_USE:
            raise
        kept.append(name)
        return False
    return True


def _open_whatever_its_mode(parent: int, name: bytes) -> int:
    """Open a directory to empty it; restores its owner's rights if they are missing."""
    found = beneath.open_path(parent, (name,), follow=False)
    try:
        if (os.fstat(found).st_mode & 0o700) != 0o700:
            with contextlib.suppress(PermissionError):
                Path(f"/proc/self/fd/{found}").chmod(0o700)
        return os.open(f"/proc/self/fd/{found}", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    finally:
        os.close(found)
