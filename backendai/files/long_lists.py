"""The names in a directory in their order; those of a long one are kept while it does not change.

An explorer looks every few seconds, and asks for page after page. Reading 100,000 names takes about 100 ms each time.
"""

from __future__ import annotations

import os
import threading
import time
from collections import OrderedDict

Name = tuple[bool, bytes]  # whether it is no directory, and its bytes: directories come first
_LONG = 2000
_KEPT = 8
_SETTLED_NS = 2 * 10**9  # a change within the same tick of the file system's clock leaves its time as it is

_kept: OrderedDict[tuple[int, ...], list[Name]] = OrderedDict()
_lock = threading.Lock()


def names_of(directory: int) -> list[Name]:
    """Return the sorted names in an open directory; nobody may change the list."""
    before = os.fstat(directory)
    key = (before.st_dev, before.st_ino, before.st_mtime_ns, before.st_ctime_ns)
    with _lock:
        if (known := _kept.get(key)) is not None:
            _kept.move_to_end(key)
            return known
    names = _read(directory)
    after = os.fstat(directory)
    is_settled = time.time_ns() - before.st_ctime_ns > _SETTLED_NS and after.st_ctime_ns == before.st_ctime_ns
    if len(names) >= _LONG and is_settled:
        with _lock:
            _kept[key] = names
            while len(_kept) > _KEPT:
                _kept.popitem(last=False)
    return names


def _read(directory: int) -> list[Name]:
    with os.scandir(directory) as entries:
        return sorted(
            (not entry.is_dir(follow_symlinks=False), entry.name.encode("utf-8", "surrogateescape"))
            for entry in entries
        )
