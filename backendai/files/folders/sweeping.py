"""Finds interrupted work at a server's start, and deletes abandoned leftovers."""

from __future__ import annotations

import fcntl
import logging
import os
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from uuid import UUID

from backendai.base.core.errors import UserError
from backendai.base.paths import beneath
from backendai.base.paths.storage_layout import DATA, INCOMING, META
from backendai.files.entries import uploads
from backendai.files.entries.tree import DELETING, STAGING, FolderTree, opened_base, opened_part, read_json, read_meta
from backendai.files.folders import trash
from backendai.files.folders.lifecycle import list_folders, opened_place
from backendai.files.folders.progress import Progress
from backendai.files.folders.removal import remove_tree, remove_trees

logger = logging.getLogger(__name__)

LEFT_AFTER = 86400.0  # seconds until an unfinished upload is deleted
_YOUNG = 600.0  # files of an archive are not locked before their sync, and clients ask after lost answers
_PAGE = 1000
_ID_LENGTH = 36


@dataclass(frozen=True, slots=True)
class Unfinished:
    """Work that a restart interrupted."""

    clones: list[UUID]
    removals: list[UUID]


def unfinished(root: int, *, now: float) -> Unfinished:
    """Return clones and removals to continue; deletes folders whose creation was interrupted long ago."""
    clones: list[UUID] = []
    with opened_place(root, STAGING) as staging:
        for name in beneath.names_in(staging):
            with suppress(FileNotFoundError):
                base = beneath.open_directory(staging, (name,), follow=False)
                try:
                    meta, made_at = read_json(base, META), os.fstat(base).st_mtime
                finally:
                    os.close(base)
                if (folder_id := _id_of(name)) and meta and meta.get("cloned_from"):
                    clones.append(folder_id)
                elif made_at < now - LEFT_AFTER:
                    remove_tree(staging, name)
    with opened_place(root, DELETING) as deleting:
        removals = {folder_id for name in beneath.names_in(deleting) if (folder_id := _id_of(name[:_ID_LENGTH]))}
    return Unfinished(clones, sorted(removals))


def remove(root: int, folder_id: UUID, progress: Progress) -> None:
    """Delete all data of a folder that was set aside."""
    with opened_place(root, DELETING) as deleting:
        names = [name for name in beneath.names_in(deleting) if name.startswith(str(folder_id).encode())]
        remove_trees(deleting, names, progress.add_files)


def sweep(root: int, *, now: float) -> None:
    """Delete uploads abandoned for a day, and items in the trash for seven days. Continues after an unreadable
    folder."""
    for folder_id in _folders(root):
        try:
            with opened_base(root, folder_id) as base:
                _sweep_incoming(base, now)
                _sweep_trash(base, now)
        except (OSError, UserError) as error:
            logger.warning("folder %s cannot be swept: %s", folder_id, error)


def _sweep_incoming(base: int, now: float) -> None:
    with opened_part(base, INCOMING) as incoming:
        for name in beneath.names_in(incoming):
            with suppress(FileNotFoundError):
                age = now - os.stat(name, dir_fd=incoming, follow_symlinks=False).st_mtime
                if age > LEFT_AFTER or (age > _YOUNG and _is_left(incoming, name)):
                    remove_tree(incoming, name)


def _is_left(incoming: int, name: bytes) -> bool:
    """Return whether a file is useless: an abandoned part, or the state of a completed upload."""
    if name.endswith(b".part"):
        return _nobody_writes(incoming, name)
    return uploads.is_state_of_placed(incoming, name)


def _nobody_writes(incoming: int, name: bytes) -> bool:
    """Return whether the process that wrote a file has ended, by its lock. False for directories, which are judged by
    age."""
    try:
        descriptor = beneath.open_file(incoming, (name,), follow=False)
    except (OSError, beneath.PathRefused):
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        return False
    finally:
        os.close(descriptor)
    return True


def _sweep_trash(base: int, now: float) -> None:
    data = beneath.open_directory(base, (DATA.encode(),), follow=False)
    try:
        tree = FolderTree(read_meta(base), base, data, read_only=False)
        if hidden := trash.hide_all(tree, before=now - trash.KEPT_SECONDS):
            trash.remove_hidden(tree, hidden)
    finally:
        os.close(data)


def _folders(root: int) -> Iterator[UUID]:
    after: str | None = ""
    while after is not None:
        page = list_folders(root, after=after, limit=_PAGE)
        yield from (UUID(folder["id"]) for folder in page["folders"])
        after = page["next"]


def _id_of(name: bytes) -> UUID | None:
    try:
        return UUID(name.decode())
    except ValueError:
        return None
