"""Clones folders: a clone is filled in ``.staging`` and becomes visible when it is complete."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any
from uuid import UUID

from backendai.base.paths import beneath
from backendai.base.paths.storage_layout import DATA
from backendai.files.entries.changes import copy_tree, is_leftover
from backendai.files.entries.tree import (
    PASSABLE,
    STAGING,
    Meta,
    make_skeleton,
    opened_folder,
    read_meta,
    read_size,
    write_meta,
)
from backendai.files.folders.lifecycle import (
    ABSENT,
    CLONING,
    enforced,
    opened_place,
    publish,
    set_aside,
    state_of,
    with_facts,
)
from backendai.files.folders.progress import Progress, Stopped
from backendai.files.refusals import Refusal


def order(
    root: int, folder_id: UUID, version: int, source: UUID, linkable: Sequence[Path], told: Mapping[str, Any]
) -> None:
    """Write the order of a clone to disk, so that a restart continues it.

    Refuses an unknown source (404), an existing target (409), and a source above the target's limit (507).
    """
    with opened_folder(root, source, linkable) as tree:
        size = read_size(tree.base)
    state = state_of(root, folder_id)
    if state == CLONING:
        return
    if state != ABSENT:
        raise Refusal(409, "exists", f"The target of the clone is {state} already.")
    meta = with_facts(Meta(str(folder_id), version, cloned_from=str(source)), told)
    if meta.limit is not None and size is not None and size.bytes > meta.limit:
        message = f"The source has {size.bytes} bytes; the clone may have {meta.limit}. Ask for a larger limit."
        raise Refusal(507, "quota", message, limit=meta.limit, used=size.bytes)
    if meta.most_entries is not None and size is not None and size.entries > meta.most_entries:
        raise _too_many(meta.most_entries)
    with opened_place(root, STAGING) as staging:
        name = str(folder_id).encode()
        beneath.make_directory(staging, name, PASSABLE)
        base = beneath.open_directory(staging, (name,), follow=False)
        try:
            make_skeleton(base)
            write_meta(base, enforced(base, meta))
        finally:
            os.close(base)


def fill(root: int, folder_id: UUID, linkable: Sequence[Path], progress: Progress) -> None:
    """Copy the files that are still missing, then rename the clone to its place. Raises Stopped."""
    name = str(folder_id).encode()
    with opened_place(root, STAGING) as staging:
        base = beneath.open_directory(staging, (name,), follow=False)
        try:
            _lock(base)
            meta = read_meta(base)
            with opened_folder(root, UUID(meta.cloned_from), linkable) as source:
                size = read_size(source.base)
                progress.total_bytes = size.bytes if size else None
                _copy_all(source.data, base, progress, meta)
        finally:
            os.close(base)
        publish(root, staging, folder_id)


def give_up(root: int, folder_id: UUID) -> bool:
    """Move the files of a failed clone aside; returns whether there were any."""
    with suppress(FileNotFoundError), opened_place(root, STAGING) as staging:
        os.close(beneath.open_directory(staging, (str(folder_id).encode(),), follow=False))
        return set_aside(root, folder_id, None)
    return False


def _lock(base: int) -> None:
    """Lock a clone, so that only one of a host's file servers fills it. Raises Stopped in the others."""
    try:
        fcntl.flock(base, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        raise Stopped from error
    except OSError:
        pass  # the file system does not support locks


def _too_many(most: int) -> Refusal:
    message = f"The source has more files, directories and links than the {most} of the clone. Ask for a larger limit."
    return Refusal(507, "too-many-files", message, limit=most)


def _copy_all(source: int, base: int, progress: Progress, meta: Meta) -> None:
    limit, most = meta.limit, meta.most_entries

    def copied(count: int) -> None:
        progress.add_files(count)
        if most is not None and progress.files > most:
            raise _too_many(most)

    def written(count: int) -> None:
        progress.add_bytes(count)
        if limit is not None and progress.bytes > limit:  # the source was not measured, or has grown since
            message = f"The files of the source exceed the {limit} bytes of the clone. Ask for a larger limit."
            raise Refusal(507, "quota", message, limit=limit)

    target = beneath.open_directory(base, (DATA.encode(),), follow=False)
    try:
        for name in beneath.names_in(source):
            if is_leftover(name):
                continue
            copy_tree(source, name, target, name, written=written, copied=copied)
        beneath.sync_all(target)
    finally:
        os.close(target)
