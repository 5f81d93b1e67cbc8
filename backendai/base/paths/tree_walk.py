"""Walks over all names below an open directory without following links, and selects entries for archives."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import suppress

from backendai.base.paths import beneath
from backendai.base.paths.beneath import Parts
from backendai.base.paths.packing import Entry, LeftOut, free_name

_DEEPEST = 2000


def walk_names(top: int) -> Iterator[tuple[Parts, int, bytes]]:
    """Yield every name below an open directory, with the path and the descriptor of its directory. Follows no link.
    Holds one descriptor per level. Skips directories that vanish or are deeper than 2000 levels."""
    levels: list[tuple[Parts, int, list[bytes]]] = []
    here: int | None = os.dup(top)
    where: Parts = ()
    try:
        while here is not None:
            below: list[bytes] = []
            levels.append((where, here, below))
            with os.scandir(here) as entries:
                for entry in entries:
                    name = os.fsencode(entry.name)
                    if entry.is_dir(follow_symlinks=False) and len(where) < _DEEPEST:
                        below.append(name)
                    yield where, levels[-1][1], name
            where, here = _descend(levels)
    finally:
        for _, descriptor, _ in levels:
            os.close(descriptor)


def select(data: int, paths: list[Parts]) -> Iterator[Entry]:
    """Yield the entries at and below some paths for an archive; closes ``data`` at the end. Two paths with the same
    last name get different ones. Raises FileNotFoundError, with the path, if one does not exist."""
    tops: set[str] = set()
    try:
        for parts in [()] if () in paths else dict.fromkeys(paths):
            top: Parts = ()
            if parts:
                found, last = _status(data, parts), parts[-1]
                parts = (*beneath.followed(data, parts[:-1]), last)
                top = (os.fsencode(free_name(os.fsdecode(parts[-1]), tops)),)
                yield _entry(data, parts, top, found)
                if not stat.S_ISDIR(found.st_mode):
                    continue
            yield from _below(data, parts, top)
    finally:
        os.close(data)


def _below(data: int, parts: Parts, top: Parts) -> Iterator[Entry]:
    try:
        directory = beneath.open_directory(data, parts, follow=False)
    except OSError:
        return  # the archive names it
    try:
        for where, parent, name in walk_names(directory):
            with suppress(FileNotFoundError):
                found = os.stat(name, dir_fd=parent, follow_symlinks=False)
                yield _entry(data, (*parts, *where, name), (*top, *where, name), found)
    finally:
        os.close(directory)


def _status(data: int, parts: Parts) -> os.stat_result:
    try:
        with beneath.parent_of(data, parts) as (parent, name):
            return os.stat(name, dir_fd=parent, follow_symlinks=False)
    except FileNotFoundError as error:
        raise FileNotFoundError(error.errno, error.strerror, os.fsdecode(b"/".join(parts))) from error


def _entry(data: int, parts: Parts, names: Parts, found: os.stat_result) -> Entry:
    return Entry(b"/".join(names), found, lambda: _read(data, parts, found.st_mode))


def _read(data: int, parts: Parts, mode: int) -> int | bytes | None:
    if stat.S_ISDIR(mode):
        os.close(beneath.open_directory(data, parts, follow=False))
        return None
    if stat.S_ISLNK(mode):
        with beneath.parent_of(data, parts) as (parent, name):
            return os.readlink(name, dir_fd=parent)
    if not stat.S_ISREG(mode):
        raise LeftOut("a device, pipe or socket")
    try:
        return beneath.open_file(data, parts, follow=False)
    except beneath.PathRefused as error:
        raise LeftOut(error.message) from error


def _descend(levels: list[tuple[Parts, int, list[bytes]]]) -> tuple[Parts, int | None]:
    """Return path and descriptor of the next unvisited directory; None after the last. Closes the directories that are
    finished."""
    while levels:
        where, parent, below = levels[-1]
        while below:
            name = below.pop()
            try:
                return (*where, name), beneath.open_directory(parent, (name,), follow=False)
            except OSError:
                continue
        os.close(parent)
        levels.pop()
    return (), None
