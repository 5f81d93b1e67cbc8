"""The sorted names in a directory; those of a large directory are cached while it does not change.

A file explorer polls every few seconds and requests many pages. Reading 100,000 names takes about 100 ms.
"""

from __future__ import annotations

import os
import threading
import time
from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass

Name = tuple[bool, bytes]  # (is not a directory, name): directories come first
_LONG = 2000
_KEPT = 8
_SETTLED_NS = 2 * 10**9  # a later change within the same clock tick would not change the time stamp


@dataclass(frozen=True, slots=True)
class Names:
    """The sorted names in a directory; callers must not change the lists. Separate lists, as a tuple for each name
    would cost as much as reading it from disk."""

    directories: list[bytes]
    files: list[bytes]

    def __len__(self) -> int:
        return len(self.directories) + len(self.files)

    def __iter__(self) -> Iterator[Name]:
        yield from ((False, name) for name in self.directories)
        yield from ((True, name) for name in self.files)

    def page(self, after: Name | None, limit: int) -> list[Name]:
        """Return up to ``limit`` names after this one, without iterating over others."""
        is_file, name = after or (False, b"")
        begin = 0 if after is None or is_file else bisect_right(self.directories, name)
        directories = [] if is_file else self.directories[begin : begin + limit]
        first = bisect_right(self.files, name) if is_file else 0
        files = self.files[first : first + limit - len(directories)]
        return [*((False, one) for one in directories), *((True, one) for one in files)]


_kept: OrderedDict[tuple[int, ...], Names] = OrderedDict()
_lock = threading.Lock()


class LongList(Exception):
    """The directory has more entries than the caller may read now."""


def names_of(directory: int, most: int | None = None) -> Names:
    """Return the names in an open directory. Raises LongList instead of reading more than ``most``."""
    before = os.fstat(directory)
    key = (before.st_dev, before.st_ino, before.st_mtime_ns, before.st_ctime_ns)
    with _lock:
        if (known := _kept.get(key)) is not None:
            _kept.move_to_end(key)
            return known
    names = _read(directory, most)
    after = os.fstat(directory)
    is_settled = time.time_ns() - before.st_ctime_ns > _SETTLED_NS and after.st_ctime_ns == before.st_ctime_ns
    if len(names) >= _LONG and is_settled:
        with _lock:
            _kept[key] = names
            while len(_kept) > _KEPT:
                _kept.popitem(last=False)
    return names


def _read(directory: int, most: int | None) -> Names:
    directories: list[str] = []
    files: list[str] = []
    with os.scandir(directory) as entries:
        for entry in entries:
            (directories if entry.is_dir(follow_symlinks=False) else files).append(entry.name)
            if most is not None and len(directories) + len(files) > most:
                raise LongList
    return Names(_sorted(directories), _sorted(files))


def _sorted(names: list[str]) -> list[bytes]:
    """Return the names as sorted bytes. Encoding all names at once is three times as fast as one by one."""
    found = "\0".join(names).encode("utf-8", "surrogateescape").split(b"\0") if names else []
    found.sort()
    return found
