"""Creates, renames and removes the folders of a storage host.

A folder is created in ``.staging``, renamed to its place, and renamed aside before its removal.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any
from uuid import UUID

from backendai.base.paths import beneath
from backendai.base.paths.storage_layout import META
from backendai.files.entries import naming
from backendai.files.entries.tree import (
    DELETING,
    PASSABLE,
    PRIVATE,
    STAGING,
    Meta,
    make_skeleton,
    open_linked,
    opened_base,
    parts_of,
    read_json,
    read_meta,
    read_size,
    write_meta,
)
from backendai.files.limits import project_quota
from backendai.files.refusals import Refusal

READY, CLONING, CREATING, BEING_DELETED, ABSENT = "ready", "cloning", "creating", "deleting", "absent"
_MOST_META = 4096
_ATTEMPTS = 5


def create(root: int, folder_id: UUID, version: int, told: Mapping[str, Any]) -> None:
    """Create a folder, or save a newer version of its meta. Refuses older versions with 409.

    If several processes create the same folder at once, one succeeds and the others save their versions.
    """
    for attempt in range(_ATTEMPTS):
        state = state_of(root, folder_id)
        if state != ABSENT:
            break
        try:
            _make(root, folder_id, version, told)
            return
        except (FileExistsError, FileNotFoundError):  # another process has created or renamed it
            if attempt == _ATTEMPTS - 1:
                raise
    if state != READY:
        raise Refusal(409, "busy", f"The folder is {state}; wait until that is done.")
    change_meta(root, folder_id, version, told)


def _make(root: int, folder_id: UUID, version: int, told: Mapping[str, Any]) -> None:
    meta = with_facts(Meta(str(folder_id), version), told)
    with opened_place(root, STAGING) as staging:
        name = str(folder_id).encode()
        beneath.make_directory(staging, name, PASSABLE)
        base = beneath.open_directory(staging, (name,), follow=False)
        try:
            make_skeleton(base)
            write_meta(base, enforced(base, meta))
        finally:
            os.close(base)
        publish(root, staging, folder_id)


def publish(root: int, staging: int, folder_id: UUID) -> None:
    """Rename a complete folder from ``.staging`` to its place."""
    first, name = parts_of(folder_id)
    shelf = beneath.make_directories(root, (first,), PASSABLE)
    try:
        naming.rename(staging, name, shelf, name, replace=False)
        os.fsync(shelf)
    finally:
        os.close(shelf)


def change_meta(root: int, folder_id: UUID, version: int, told: Mapping[str, Any]) -> bool:
    """Save name, owner and limit, if given; returns whether the folder has joined a quota project and must be measured.
    Refuses older versions with 409."""
    with opened_base(root, folder_id) as base:
        meta = require_version(base, version)
        new = enforced(base, with_facts(replace(meta, version=version), told))
        write_meta(base, new)
        return new.project != meta.project


def link(root: int, folder_id: UUID, version: int, path: str, linkable: Sequence[Path]) -> None:
    """Link a folder to an existing path, read-only. Refuses paths that the settings do not allow, and folders with
    files."""
    os.close(open_linked(path, linkable))
    with opened_base(root, folder_id) as base:
        meta = require_version(base, version)
        data = beneath.open_directory(base, (b"data",), follow=False)
        try:
            if beneath.names_in(data):
                raise Refusal(409, "not-empty", "The folder holds files; only an empty one can show another path.")
        finally:
            os.close(data)
        write_meta(base, replace(meta, version=version, linked_path=path))


def set_aside(root: int, folder_id: UUID, version: int | None) -> bool:
    """Rename a folder aside, so that it disappears at once; returns whether it existed.

    ``version`` must be newer than all earlier ones, as an equal one comes from a database without the folder's last
    use. None: this server's own order.
    """
    name = str(folder_id).encode()
    with opened_place(root, DELETING) as deleting:
        found = False
        for parts in ((STAGING.encode(), name), parts_of(folder_id)):
            try:
                base = beneath.open_directory(root, parts, follow=False)
            except FileNotFoundError:
                continue
            try:
                if version is not None:
                    require_version(base, version, is_newer=True)
            finally:
                os.close(base)
            with beneath.parent_of(root, parts) as (parent, last):
                os.rename(last, name + b"-" + uuid.uuid4().hex[:8].encode(), src_dir_fd=parent, dst_dir_fd=deleting)
                os.fsync(parent)
            found = True
        os.fsync(deleting)
    return found


def state_of(root: int, folder_id: UUID) -> str:
    """Return the folder's state on the disk."""
    with suppress(FileNotFoundError):
        os.close(beneath.open_path(root, parts_of(folder_id), follow=False))
        return READY
    name = str(folder_id).encode()
    with suppress(FileNotFoundError), opened_place(root, STAGING) as staging:
        base = beneath.open_directory(staging, (name,), follow=False)
        try:
            meta = read_json(base, META)
        finally:
            os.close(base)
        return CLONING if meta and meta.get("cloned_from") else ABSENT  # an interrupted creation is not a folder
    with opened_place(root, DELETING) as deleting:
        if any(entry.startswith(name) for entry in beneath.names_in(deleting)):
            return BEING_DELETED
    return ABSENT


def describe(root: int, folder_id: UUID) -> dict[str, Any]:
    """Return state, version, limit and size of a folder."""
    state = state_of(root, folder_id)
    if state != READY:
        return {"state": state, "version": None, "size": None, "limit": None, "is_enforced": False}
    with opened_base(root, folder_id) as base:
        meta, size = read_meta(base), read_size(base)
    told = {"state": state, "version": meta.version, "limit": meta.limit, "linked_path": meta.linked_path}
    return {**told, "size": asdict(size) if size else None, "is_enforced": bool(meta.project)}


def list_folders(root: int, *, after: str, limit: int) -> dict[str, Any]:
    """Return a page of the existing folders, by id, with the contents of their meta."""
    found: list[dict[str, Any]] = []
    for name in _folder_names(root, after):
        if len(found) == limit:
            return {"folders": found, "next": found[-1]["id"]}
        try:
            with opened_base(root, UUID(name)) as base:
                found.append({"id": name, "version": None, "meta": None} | _told(read_json(base, META)))
        except (Refusal, OSError):
            continue  # deleted meanwhile
    return {"folders": found, "next": None}


def with_facts(meta: Meta, told: Mapping[str, Any]) -> Meta:
    """Return the meta with the values of an order. Refuses values that are too long."""
    facts = dict(told)
    limit = facts.pop("limit", meta.limit)
    if limit is not None and (not isinstance(limit, int) or isinstance(limit, bool) or limit < 0):
        raise Refusal(422, "bad-value", "limit is a number of bytes, or null for none.")
    if len(str(facts)) > _MOST_META:
        raise Refusal(422, "bad-value", f"meta has more than {_MOST_META} characters.")
    name, owner = (str(facts.pop(fact, known)) for fact, known in (("name", meta.name), ("owner", meta.owner)))
    return replace(meta, limit=limit, more={**meta.more, **facts}, name=name, owner=owner)


def enforced(base: int, meta: Meta) -> Meta:
    """Let the file system enforce the folder's limit, if it can; returns the meta with the project number. Existing
    files join the project at the next measurement."""
    if (meta.limit is None and not meta.project) or meta.linked_path or not project_quota.is_offered(base):
        return meta
    number = meta.project or project_quota.free_number(base, UUID(meta.id))
    project_quota.join_skeleton(base, number)
    project_quota.set_limit(base, number, meta.limit, meta.most_entries)
    return replace(meta, project=number)


def require_version(base: int, version: int, *, is_newer: bool = False) -> Meta:
    """Return the folder's meta. Refuses with 409 an order with an older version; with ``is_newer``, also the same
    version."""
    meta = read_meta(base)
    if version < meta.version + is_newer:
        message = f"This order is of version {version}, and the folder has seen version {meta.version}."
        raise Refusal(409, "stale-version", message, version=meta.version)
    return meta


@contextmanager
def opened_place(root: int, name: str) -> Iterator[int]:
    """Yield the descriptor of ``.staging`` or ``.deleting``; a missing directory is created."""
    descriptor = beneath.make_directories(root, (name.encode(),), PRIVATE)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _told(content: dict[str, Any] | None) -> dict[str, Any]:
    return {"version": content.get("version"), "meta": content} if content else {}


def _folder_names(root: int, after: str) -> Iterator[str]:
    shelves = sorted(name for name in beneath.names_in(root) if len(name) == 2 and name >= after[:2].encode())
    for shelf in shelves:
        try:
            directory = beneath.open_directory(root, (shelf,), follow=False)
        except OSError:
            continue
        try:
            names = sorted(beneath.names_in(directory))
        finally:
            os.close(directory)
        for name in names:
            text = name.decode(errors="replace")
            if text > after and text.replace("-", "").startswith(shelf.decode()) and _is_id(text):
                yield text


def _is_id(text: str) -> bool:
    try:
        return str(UUID(text)) == text
    except ValueError:
        return False
