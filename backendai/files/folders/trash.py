"""The trash inside a folder: deleted entries stay for seven days and can be restored."""

from __future__ import annotations

import base64
import contextlib
import errno
import os
import re
import stat
import uuid
from collections.abc import Sequence
from typing import Any

from backendai.base.paths import beneath
from backendai.base.paths.beneath import Parts
from backendai.base.paths.storage_layout import TRASH
from backendai.files.entries import naming
from backendai.files.entries.listing import kind_of, shown_path
from backendai.files.entries.naming import rename_beside
from backendai.files.entries.tree import PRIVATE, FolderTree, opened_part, read_json, write_json
from backendai.files.folders.removal import remove_tree, remove_trees
from backendai.files.refusals import Refusal

_FEW = 8
KEPT_SECONDS = 7 * 86400
_INFO, _ENTRY, _GONE = "info.json", b"entry", b".gone-"
_ITEM = re.compile(r"[0-9]{13}-[0-9a-f]{12}\Z")  # ids sort by time


def put_into_trash(tree: FolderTree, parts: Parts, *, now: float) -> str:
    """Move an entry to the trash; returns the item's id. Raises FileNotFoundError."""
    for item, _ in put_many_into_trash(tree, [parts], now=now):
        return item
    raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT))


def put_many_into_trash(tree: FolderTree, paths: Sequence[Parts], *, now: float) -> list[tuple[str, Parts]]:
    """Move entries to the trash; returns the items' ids with their paths. Skips missing entries.

    Entries moved before an error stay moved. Up to eight are synced one by one, more with two syncs of the file system.
    """
    tree.require_writable()
    are_few = len(paths) <= _FEW
    with opened_part(tree.base, TRASH) as trash:
        waiting: dict[str, Parts] = {}
        try:
            for parts in paths:
                with contextlib.suppress(FileNotFoundError), beneath.parent_of(tree.data, parts) as (parent, name):
                    found = os.stat(name, dir_fd=parent, follow_symlinks=False)
                    waiting[item := f"{int(now * 1000):013d}-{uuid.uuid4().hex[:12]}"] = parts
                    _describe_item(trash, item, parts, found, now, is_synced=are_few)
            if not are_few:  # sync the original paths before entries are moved
                beneath.sync_all(trash)
            moved = []
            for item, parts in list(waiting.items()):
                if _take(tree, trash, item, parts, is_synced=are_few):
                    moved.append((item, waiting.pop(item)))
        finally:
            for item in waiting:
                if not _has_entry(trash, item):  # an entry stays in the trash if only the sync failed
                    remove_tree(trash, item.encode())
        if not are_few:
            beneath.sync_all(trash)
    return moved


def _describe_item(trash: int, item: str, parts: Parts, found: os.stat_result, now: float, *, is_synced: bool) -> None:
    beneath.make_directory(trash, item.encode(), PRIVATE, exist_ok=False)
    place = beneath.open_directory(trash, (item.encode(),), follow=False)
    try:
        told = {"kind": kind_of(found.st_mode), "size": found.st_size, "deleted_at": now}
        path = base64.b64encode(b"/".join(parts)).decode()
        write_json(place, _INFO, {"path": path, **told}, is_synced=is_synced)
    finally:
        os.close(place)


def _take(tree: FolderTree, trash: int, item: str, parts: Parts, *, is_synced: bool) -> bool:
    """Move an entry to its item in the trash; returns whether it existed."""
    place = beneath.open_directory(trash, (item.encode(),), follow=False)
    try:
        with beneath.parent_of(tree.data, parts) as (parent, name):
            naming.rename(parent, name, place, _ENTRY, replace=True)
            if is_synced:
                os.fsync(place)
                os.fsync(parent)
    except FileNotFoundError:
        return False
    finally:
        os.close(place)
    return True


def _has_entry(trash: int, item: str) -> bool:
    try:
        os.stat(item.encode() + b"/" + _ENTRY, dir_fd=trash, follow_symlinks=False)
    except FileNotFoundError:
        return False
    return True


def list_trash(tree: FolderTree, *, after: str, limit: int) -> dict[str, Any]:
    """Return the deleted entries, newest first."""
    with opened_part(tree.base, TRASH) as trash:
        names = sorted((name for name in _names(trash) if _ITEM.match(name)), reverse=True)
        names = [name for name in names if not after or name < after]
        items = [item for name in names[:limit] if (item := _read_item(trash, name)) is not None]
    return {"items": items, "next": names[limit - 1] if len(names) > limit else None}


def restore(tree: FolderTree, item: str, *, overwrite: bool, keep_both: bool = False, now: float) -> dict[str, str]:
    """Restore an item to its path; creates missing parents and returns the path. ``keep_both``: a taken name gets a
    number. Raises FileExistsError."""
    tree.require_writable()
    with opened_part(tree.base, TRASH) as trash:
        place = _open_item(trash, item)
        try:
            parts = _path_of(read_json(place, _INFO))
            os.close(beneath.make_directories(tree.data, parts[:-1], follow=True))
            with beneath.parent_of(tree.data, parts) as (parent, name):
                if overwrite and beneath.exists(parent, name):
                    put_into_trash(tree, parts, now=now)
                if keep_both:
                    is_directory = stat.S_ISDIR(os.stat(_ENTRY, dir_fd=place, follow_symlinks=False).st_mode)
                    name = rename_beside(place, _ENTRY, parent, name, is_directory=is_directory)
                else:
                    naming.rename(place, _ENTRY, parent, name, replace=False)
                os.fsync(parent)
        finally:
            os.close(place)
        remove_tree(trash, item.encode())
    return shown_path((*parts[:-1], name))


def hide_path(tree: FolderTree, parts: Parts) -> bytes:
    """Delete an entry without the trash; this works even on a full disk. Returns the name for ``remove_hidden``. Raises
    FileNotFoundError."""
    tree.require_writable()
    hidden = _GONE + uuid.uuid4().hex.encode()
    with beneath.parent_of(tree.data, parts) as (parent, name), opened_part(tree.base, TRASH) as trash:
        naming.rename(parent, name, trash, hidden, replace=True)
        os.fsync(parent)
    return hidden


def hide_item(tree: FolderTree, item: str) -> bytes:
    """Remove an item from the trash at once; returns the name for ``remove_hidden``."""
    tree.require_writable()
    with opened_part(tree.base, TRASH) as trash:
        os.close(_open_item(trash, item))
        return _hide(trash, item)


def hide_all(tree: FolderTree, *, before: float | None = None) -> list[bytes]:
    """Remove all items from the trash, or those deleted ``before``; returns the names for ``remove_hidden``, including
    leftovers."""
    with opened_part(tree.base, TRASH) as trash:
        names = _names(trash)
        old = [name for name in names if _ITEM.match(name) and (before is None or int(name[:13]) < before * 1000)]
        hidden = [name.encode() for name in names if name.startswith(_GONE.decode())]
        return hidden + [_hide(trash, name) for name in old]


def remove_hidden(tree: FolderTree, names: list[bytes]) -> None:
    """Delete hidden entries from disk."""
    with opened_part(tree.base, TRASH) as trash:
        remove_trees(trash, names)


def _hide(trash: int, item: str) -> bytes:
    hidden = _GONE + item.encode()
    os.rename(item, hidden, src_dir_fd=trash, dst_dir_fd=trash)
    return hidden


def _open_item(trash: int, item: str) -> int:
    if not _ITEM.match(item):
        raise Refusal(404, "not-found", "Not found in the trash.")
    return beneath.open_directory(trash, (item.encode(),), follow=False)


def _read_item(trash: int, item: str) -> dict[str, Any] | None:
    try:
        place = _open_item(trash, item)
    except OSError:
        return None
    try:
        if not beneath.exists(place, _ENTRY):
            return None
        info = read_json(place, _INFO)
        parts = _path_of(info)
        told = {name: info[name] for name in ("kind", "size", "deleted_at")} if info else {}
        return {"id": item, **shown_path(parts), **told}
    except (Refusal, KeyError):
        return None
    finally:
        os.close(place)


def _path_of(info: dict[str, Any] | None) -> Parts:
    try:
        return beneath.parse(base64.b64decode(str((info or {})["path"]), validate=True))
    except (KeyError, ValueError) as error:
        raise Refusal(404, "not-found", "This item of the trash does not say where it was.") from error


def _names(trash: int) -> list[str]:
    return [name.decode(errors="replace") for name in beneath.names_in(trash)]
