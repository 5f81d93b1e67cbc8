"""Changes a folder: creates directories, moves and copies entries. A replaced entry other than a file is moved to the
trash."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import re
import stat
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

from backendai.base.core.messages import Message
from backendai.base.paths import beneath
from backendai.base.paths.beneath import Parts
from backendai.base.paths.storage_layout import INCOMING
from backendai.files.entries import naming
from backendai.files.entries.listing import shown_path
from backendai.files.entries.naming import rename_beside
from backendai.files.entries.tree import FolderTree, opened_part
from backendai.files.folders.removal import remove_tree
from backendai.files.folders.trash import put_into_trash
from backendai.files.refusals import Refusal, as_refusal

_STALE_TRIES = 3
_OF_THE_ENTRY = (errno.EACCES, errno.EIO, errno.EPERM, errno.ESTALE)
_LEFTOVER = re.compile(rb"\.nfs[0-9a-f]{16,24}\Z")


def make_directory(tree: FolderTree, parts: Parts) -> None:
    """Create a directory whose parent exists. Raises FileExistsError."""
    tree.require_writable()
    with beneath.parent_of(tree.data, parts) as (parent, name):
        beneath.make_directory(parent, name, exist_ok=False)
        os.fsync(parent)


def move(
    tree: FolderTree, source: Parts, target: Parts, *, overwrite: bool, keep_both: bool = False, now: float
) -> Parts:
    """Move a file, link or directory to another path in the folder, and return the path.

    ``keep_both``: a taken name gets a number. Raises FileExistsError.
    """
    tree.require_writable()
    _refuse_into_itself(source, target, overwrite=overwrite)
    with beneath.parent_of(tree.data, source) as (old, name), beneath.parent_of(tree.data, target) as (new, new_name):
        moved = os.stat(name, dir_fd=old, follow_symlinks=False)
        if name == new_name and os.path.samestat(os.fstat(old), os.fstat(new)):
            return target
        if overwrite:
            make_room(tree, target, stat.S_ISREG(moved.st_mode), now=now)
        new_name = _rename(old, name, new, new_name, moved, overwrite=overwrite, keep_both=keep_both)
        os.fsync(new)
        os.fsync(old)
    return (*target[:-1], new_name)


def copy(
    tree: FolderTree,
    source: Parts,
    target: Parts,
    *,
    overwrite: bool,
    keep_both: bool = False,
    now: float,
    written: Progress,
) -> Parts:
    """Copy a file or a directory tree, and return the path of the copy, which becomes visible when it is complete.

    ``keep_both``: a taken name gets a number. Raises FileExistsError.
    """
    tree.require_writable()
    _refuse_into_itself(source, target, overwrite=overwrite)
    with beneath.parent_of(tree.data, source) as (old, name), beneath.parent_of(tree.data, target) as (new, new_name):
        copied = os.stat(name, dir_fd=old, follow_symlinks=False)
        if not (overwrite or keep_both) and beneath.exists(new, new_name):
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST))
        with opened_part(tree.base, INCOMING) as incoming:
            draft = part_name()
            try:
                copy_tree(old, name, incoming, draft, written=written)
                beneath.sync_all(incoming)
                if overwrite:
                    make_room(tree, target, stat.S_ISREG(copied.st_mode), now=now)
                new_name = _rename(incoming, draft, new, new_name, copied, overwrite=overwrite, keep_both=keep_both)
            except BaseException:
                remove_tree(incoming, draft)
                raise
        os.fsync(new)
    return (*target[:-1], new_name)


def _rename(
    source: int, name: bytes, target: int, wanted: bytes, found: os.stat_result, *, overwrite: bool, keep_both: bool
) -> bytes:
    """Rename between two open directories, and return the new name: with ``keep_both`` the first free one."""
    if keep_both:
        return rename_beside(source, name, target, wanted, is_directory=stat.S_ISDIR(found.st_mode))
    naming.rename(source, name, target, wanted, replace=overwrite and stat.S_ISREG(found.st_mode))
    return wanted


def make_room(tree: FolderTree, target: Parts, is_file: bool, *, now: float) -> None:
    """Move the entry at the target path to the trash. Does nothing if both are files, as a rename replaces a file
    atomically."""
    with beneath.parent_of(tree.data, target) as (parent, name):
        try:
            mode = os.stat(name, dir_fd=parent, follow_symlinks=False).st_mode
        except FileNotFoundError:
            return
    if not (is_file and stat.S_ISREG(mode)):
        put_into_trash(tree, target, now=now)


def part_name() -> bytes:
    """Return a unique name for a file in ``incoming``; a sweep recognises leftovers by its form."""
    return f"{uuid.uuid4().hex}.part".encode()


def copy_tree(
    source: int,
    name: bytes,
    target: int,
    new_name: bytes,
    *,
    written: Progress,
    copied: Progress = lambda _: None,
) -> None:
    """Copy an entry of an open directory, with all its contents, into another directory.

    Links are copied as links, devices are skipped. Files that exist with the same size and time are kept, so that a
    copy can be resumed. Nothing is synced. Raises a Refusal that names the failed entry.
    """
    copy = _Copy(source, target, written, copied)
    waiting = copy.entry(source, target, (name,), (new_name,))
    directories = []
    while waiting:
        directory = waiting.pop()
        directories.append(directory)
        waiting += copy.content(directory)
        if len(directory.parts) > beneath.MOST_PARTS:
            raise Refusal(422, "too-deep", f"There are more than {beneath.MOST_PARTS} levels of directories.")
    for directory in reversed(directories):
        descriptor = beneath.open_directory(target, directory.to, follow=False)
        try:
            os.fchmod(descriptor, stat.S_IMODE(directory.found.st_mode) | stat.S_IRWXU)
            os.utime(descriptor, ns=(directory.found.st_atime_ns, directory.found.st_mtime_ns))
        finally:
            os.close(descriptor)


def is_leftover(name: bytes) -> bool:
    """Return whether a network file system gives this name to deleted files that are open."""
    return _LEFTOVER.match(name) is not None


class _Directory(NamedTuple):
    """A directory to copy: its path, its target path, and its status."""

    parts: Parts
    to: Parts
    found: os.stat_result


@dataclass(frozen=True, slots=True)
class _Copy:
    """A copy from below one open directory to below another. Each directory is opened once for all files in it."""

    source: int
    target: int
    written: Progress
    copied: Progress

    def content(self, directory: _Directory) -> list[_Directory]:
        """Copy the files of a directory; returns the directories in it."""
        found: list[_Directory] = []
        with contextlib.ExitStack() as opened:
            try:
                old = beneath.open_directory(self.source, directory.parts, follow=False)
            except FileNotFoundError:
                return []  # removed while the copy runs
            opened.callback(os.close, old)
            new = beneath.open_directory(self.target, directory.to, follow=False)
            opened.callback(os.close, new)
            for name in beneath.names_in(old):
                if not is_leftover(name):
                    found += self.entry(old, new, (*directory.parts, name), (*directory.to, name))
        return found

    def entry(self, old: int, new: int, parts: Parts, to: Parts) -> list[_Directory]:
        """Copy one entry between open directories; returns it if it is a directory.

        Retries by the complete paths after a stale handle of a network file system. Raises a Refusal that names the
        entry.
        """
        for left in reversed(range(_STALE_TRIES)):
            try:
                if left == _STALE_TRIES - 1:
                    found = _copy_one(old, parts[-1], new, to[-1], self.written)
                else:
                    found = self._by_path(parts, to)
                break
            except OSError as error:
                refusal = as_refusal(error)
                if error.errno == errno.ESTALE and left:
                    continue
                if refusal is None or error.errno not in _OF_THE_ENTRY:
                    raise
                message = Message("{path}: {reason}", path=shown_path(parts)["path"], reason=refusal.message)
                raise Refusal(refusal.status, refusal.code, message) from error
        self.copied(1)
        return [] if found is None else [_Directory(parts, to, found)]

    def _by_path(self, parts: Parts, to: Parts) -> os.stat_result | None:
        with (
            beneath.parent_of(self.source, parts) as (old, name),
            beneath.parent_of(self.target, to) as (new, new_name),
        ):
            return _copy_one(old, name, new, new_name, self.written)


def _copy_one(old: int, name: bytes, new: int, new_name: bytes, written: Progress) -> os.stat_result | None:
    """Copy one file, link or empty directory; returns a directory's status, for copying its contents."""
    try:
        found = os.stat(name, dir_fd=old, follow_symlinks=False)
    except FileNotFoundError:
        return None  # removed while the copy runs
    if stat.S_ISDIR(found.st_mode):
        beneath.make_directory(new, new_name, 0o700)
        return found
    if stat.S_ISLNK(found.st_mode):
        with contextlib.suppress(FileExistsError):
            os.symlink(os.readlink(name, dir_fd=old), new_name, dir_fd=new)
    elif stat.S_ISREG(found.st_mode):
        copy_file(old, name, new, new_name, written)
    return None


def _refuse_into_itself(source: Parts, target: Parts, *, overwrite: bool) -> None:
    if not source or not target:
        raise beneath.PathRefused("The folder itself can be neither moved nor replaced.", field="path")
    if target[: len(source)] == source and len(target) > len(source):
        raise Refusal(422, "into-itself", "A directory can be neither moved nor copied into itself.")
    if overwrite and source[: len(target)] == target and len(source) > len(target):
        raise Refusal(422, "into-itself", "What would be replaced holds what is to be moved or copied.")


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
