"""Moves members of an archive to their paths: many at once, each atomically, after one sync for all.

The sync of a batch also makes the names of the previous batch durable; ``sync_names`` does so after the last batch.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from backendai.base.paths import beneath
from backendai.base.paths.beneath import Parts
from backendai.base.paths.storage_layout import INCOMING
from backendai.files.entries import naming
from backendai.files.entries.changes import part_name
from backendai.files.entries.content import freed_by
from backendai.files.entries.listing import kind_of, shown_path
from backendai.files.entries.naming import names_for, rename_beside
from backendai.files.entries.tree import FolderTree, opened_part
from backendai.files.limits.quota import NOTHING, Amount, Room
from backendai.files.refusals import Refusal, as_refusal

SKIP_EQUAL, ALL, NEVER, KEEP_BOTH = "skip-equal", "all", "never", "keep-both"
MODES, REPLACING = (SKIP_EQUAL, ALL, NEVER, KEEP_BOTH), (SKIP_EQUAL, ALL)
_MOST_OPEN = 64
_MOST_TOLD = 1000


@dataclass(frozen=True, slots=True)
class Item:
    """A member to move to its path: its bytes, or the name of a file in ``incoming`` with them."""

    parts: Parts
    kind: str
    mode: int
    mtime: float
    target: bytes = b""
    data: bytes | None = None
    draft: bytes | None = None
    size: int = 0


@dataclass(slots=True)
class Outcome:
    """The result of unpacking an archive."""

    written: int = 0
    skipped: int = 0
    equal: int = 0  # the skipped ones with the member's size and time
    kept: list[dict[str, Any]] = field(default_factory=list)  # the other skipped ones
    refused: list[dict[str, Any]] = field(default_factory=list)
    bytes: int = 0
    freed: Amount = NOTHING

    def refuse(self, told: dict[str, str], code: str) -> None:
        """Record a rejected member; only the first 1,000 are listed."""
        if len(self.refused) < _MOST_TOLD:
            self.refused.append({**told, "code": code})

    def keep(self, item: Item, there: os.stat_result) -> None:
        """Record an existing entry that stays instead of a member; only the first 1,000 are listed."""
        self.skipped += 1
        if len(self.kept) < _MOST_TOLD:
            self.kept.append({**shown_path(item.parts), "kind": kind_of(there.st_mode)})

    def add(self, other: Outcome) -> None:
        """Add the result of another batch."""
        self.written += other.written
        self.skipped += other.skipped
        self.equal += other.equal
        self.bytes += other.bytes
        self.refused += other.refused[: _MOST_TOLD - len(self.refused)]
        self.kept += other.kept[: _MOST_TOLD - len(self.kept)]


def put(tree: FolderTree, items: list[Item], overwrite: str, room: Room) -> Outcome:
    """Move members to their paths, which reserves their amount in ``room``. A failed member does not stop the others; a
    full disk or folder does."""
    tree.require_writable()
    outcome, ready = Outcome(), list[tuple[Item, bytes]]()
    items = sorted(items, key=lambda item: item.parts[:-1])  # opens each directory once before and once after the sync
    with opened_part(tree.base, INCOMING) as incoming:
        try:
            with _parents(tree.data, room) as parents:
                for item in items:
                    with _noting(outcome, item):
                        if draft := _prepare(incoming, parents, item, overwrite, outcome, room):
                            ready.append((item, draft))
                if ready:
                    beneath.sync_all(incoming)
                for item, draft in ready:
                    with _noting(outcome, item):
                        outcome.freed += _place(incoming, draft, parents.of(item.parts[:-1]), item, overwrite)
                        outcome.written += 1
                        outcome.bytes += item.size
        finally:
            for _, draft in ready:
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(draft, dir_fd=incoming)
            _discard(incoming, items)
    return outcome


def discard(tree: FolderTree, items: list[Item]) -> None:
    """Delete the files of members that were written to ``incoming`` and not moved to their paths."""
    with opened_part(tree.base, INCOMING) as incoming:
        _discard(incoming, items)


def _discard(incoming: int, items: list[Item]) -> None:
    for item in items:
        if item.draft:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(item.draft, dir_fd=incoming)


def sync_names(tree: FolderTree) -> None:
    """Make the names of all unpacked members durable, by one sync of the file system."""
    beneath.sync_all(tree.data)


class Parents:
    """Open directories below a folder, created if missing; up to 64 stay open."""

    def __init__(self, data: int, room: Room) -> None:
        self._data, self._room = data, room
        self._made: list[Parts] = []
        self._open: dict[Parts, int] = {}

    def of(self, parts: Parts) -> int:
        """Return a directory's descriptor. Follows no links."""
        if parts not in self._open:
            if len(self._open) >= _MOST_OPEN:
                self.close()
            self._open[parts] = beneath.make_directories(self._data, parts, follow=True, before=self._reserve)
        return self._open[parts]

    def _reserve(self, parts: Parts) -> None:
        self._room.add(Amount(0, 1))
        self._made.append(parts)

    def undo(self) -> None:
        """Remove the directories that were created and are empty."""
        for parts in reversed(self._made):
            with contextlib.suppress(OSError), beneath.parent_of(self._data, parts) as (parent, name):
                os.rmdir(name, dir_fd=parent)

    def close(self) -> None:
        """Close all directories."""
        for descriptor in self._open.values():
            os.close(descriptor)
        self._open.clear()


@contextmanager
def _parents(data: int, room: Room) -> Iterator[Parents]:
    parents = Parents(data, room)
    try:
        yield parents
    except BaseException:
        parents.undo()
        raise
    finally:
        parents.close()


@contextmanager
def _noting(outcome: Outcome, item: Item) -> Iterator[None]:
    try:
        yield
    except Exception as error:
        refusal = as_refusal(error)
        if refusal is None or refusal.status >= 500:
            raise
        outcome.refuse(shown_path(item.parts), refusal.code)


def _prepare(incoming: int, parents: Parents, item: Item, overwrite: str, outcome: Outcome, room: Room) -> bytes | None:
    """Write a member to ``incoming``; returns its name there, None if nothing has to be renamed."""
    if item.kind == "directory":
        parents.of(item.parts)
        outcome.written += 1
        return None
    parent = parents.of(item.parts[:-1])
    if _is_kept(parent, item, overwrite, outcome):
        return None
    if item.draft is not None:
        return item.draft  # its amount was reserved before it was written
    freed = freed_by(parent, item.parts[-1]) if overwrite in REPLACING else NOTHING
    room.add(Amount(item.size, 1) - freed)
    if item.kind == "link":
        return _make_link(incoming, item)
    draft = part_name()
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, item.mode, dir_fd=incoming)
    try:
        view = memoryview(item.data or b"")
        while view:
            view = view[os.write(descriptor, view) :]
        set_time(descriptor, item.mtime)
    except BaseException:
        os.unlink(draft, dir_fd=incoming)
        raise
    finally:
        os.close(descriptor)
    return draft


def set_time(descriptor: int, mtime: float) -> None:
    """Set a file's time to that in the archive."""
    os.utime(descriptor, (mtime, mtime))


def link_stays_inside(parts: Parts, target: bytes) -> bool:
    """Return whether a link's target text stays inside the folder."""
    if not target or target.startswith(b"/") or b"\0" in target:
        return False
    depth = len(parts) - 1
    for part in target.split(b"/"):
        depth += -1 if part == b".." else part not in (b"", b".")
        if depth < 0:
            return False
    return True


def _place(incoming: int, draft: bytes, parent: int, item: Item, overwrite: str) -> Amount:
    """Move a member to its path; returns what the replaced file frees."""
    freed = freed_by(parent, item.parts[-1]) if overwrite in REPLACING else NOTHING
    if overwrite == KEEP_BOTH:
        rename_beside(incoming, draft, parent, item.parts[-1], is_directory=False)
    else:
        naming.rename(incoming, draft, parent, item.parts[-1], replace=overwrite != NEVER)
    return freed


def _is_kept(parent: int, item: Item, overwrite: str, outcome: Outcome) -> bool:
    """Return whether the existing entry stays, and count it. Raises IsADirectoryError."""
    if overwrite == KEEP_BOTH:
        return _is_there_numbered(parent, item, outcome)
    try:
        there = os.stat(item.parts[-1], dir_fd=parent, follow_symlinks=False)
    except FileNotFoundError:
        return False
    if overwrite != NEVER and stat.S_ISDIR(there.st_mode):
        raise OSError(errno.EISDIR, os.strerror(errno.EISDIR))
    if overwrite != ALL and _is_equal(parent, item, item.parts[-1], there):
        outcome.skipped += 1
        outcome.equal += 1
        return True
    if overwrite == NEVER:
        outcome.keep(item, there)
    return overwrite == NEVER


def _is_there_numbered(parent: int, item: Item, outcome: Outcome) -> bool:
    """Return whether an equal entry has a form of the member's name, as after a lost answer, and count it."""
    for name in names_for(item.parts[-1], is_directory=False):
        try:
            there = os.stat(name, dir_fd=parent, follow_symlinks=False)
        except FileNotFoundError:
            return False
        if _is_equal(parent, item, name, there):
            outcome.skipped += 1
            outcome.equal += 1
            return True
    return False


def _is_equal(parent: int, item: Item, name: bytes, there: os.stat_result) -> bool:
    if item.kind == "link":
        return stat.S_ISLNK(there.st_mode) and os.readlink(name, dir_fd=parent) == item.target
    return stat.S_ISREG(there.st_mode) and (there.st_size, int(there.st_mtime)) == (item.size, int(item.mtime))


def _make_link(incoming: int, item: Item) -> bytes:
    if not link_stays_inside(item.parts, item.target):
        raise Refusal(422, "link-refused", "The link leads out of the folder.")
    draft = part_name()
    os.symlink(item.target, draft, dir_fd=incoming)
    return draft
