"""Walks over all names below an open directory without following links."""

from __future__ import annotations

import os
from collections.abc import Iterator

from backendai.core import beneath
from backendai.core.beneath import Parts

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
