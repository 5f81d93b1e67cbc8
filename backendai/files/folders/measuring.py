"""Measures the size of a folder in blocks, as ``du`` does: its data, its trash and unfinished writes."""

from __future__ import annotations

import logging
import os
import stat
from contextlib import suppress
from dataclasses import asdict
from uuid import UUID

from backendai.base.paths import beneath
from backendai.base.paths.storage_layout import DATA, INCOMING, TRASH
from backendai.base.paths.tree_walk import walk_names
from backendai.files.entries.tree import BLOCK, SIZE, Size, opened_base, read_meta, write_json
from backendai.files.folders.progress import Progress
from backendai.files.limits import project_quota

logger = logging.getLogger(__name__)


def measure(root: int, folder_id: UUID, at: float, progress: Progress) -> Size:
    """Measure a folder and save its size beside it; returns the size. Reads the status of every file. If the file
    system enforces the limit, files outside the folder's quota project join it."""
    with opened_base(root, folder_id) as base:
        meta = read_meta(base)
        if meta.project:
            with suppress(OSError):  # quotas were turned off
                while True:  # an order may have changed the limit between the two, and its limit counts
                    project_quota.set_limit(base, meta.project, meta.limit, meta.most_entries)
                    if (newer := read_meta(base)) == meta:
                        break
                    meta = newer
            if joined := project_quota.join_all(base, meta.project):
                logger.info("%d entries of folder %s belong to its project now", joined, folder_id)
        size = Size(0, 0, at)
        for part in (DATA, INCOMING, TRASH):
            top = beneath.make_directories(base, (part.encode(),), 0o700)
            try:
                bytes_, files, entries = _measure(top, progress)
            finally:
                os.close(top)
            # Counts files only in the data, but the rest also in the trash and unfinished writes.
            files = size.files + (files if part == DATA else 0)
            size = Size(size.bytes + bytes_, files, at, size.entries + entries)
        write_json(base, SIZE, asdict(size))
    return size


def _measure(top: int, progress: Progress) -> tuple[int, int, int]:
    blocks, files, entries = os.fstat(top).st_blocks, 0, 0
    seen: set[tuple[int, int]] = set()
    for _, parent, name in walk_names(top):
        try:
            found = os.stat(name, dir_fd=parent, follow_symlinks=False)
        except OSError:
            continue  # deleted meanwhile
        is_directory = stat.S_ISDIR(found.st_mode)
        files += not is_directory
        if found.st_nlink > 1 and not is_directory:
            if (found.st_dev, found.st_ino) in seen:
                continue
            seen.add((found.st_dev, found.st_ino))
        blocks += found.st_blocks
        entries += 1
        progress.add_files()
    return blocks * BLOCK, files, entries
