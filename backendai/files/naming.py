"""Numbers the names of entries whose names are taken: ``model (2).pt``; for a directory ``data.v2 (2)``."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import suppress

from backendai.core import beneath

_LONGEST = 255  # bytes of a name
_LAST_NUMBER = 10_000


def numbered(name: bytes, number: int, *, is_directory: bool) -> bytes:
    """Return the name with a number: before the ending of a file's name, at the end of a directory's.

    A name that would be too long for the file system loses the end of its stem.
    """
    dot = -1 if is_directory else name.rfind(b".")
    cut = dot if dot > 0 else len(name)
    mark, ending = b" (%d)" % number, name[cut:]
    stem = name[: min(cut, max(1, _LONGEST - len(mark) - len(ending)))]
    if len(stem) < cut:
        stem = stem.decode(errors="ignore").encode() or stem
    return stem + mark + ending


def names_for(name: bytes, *, is_directory: bool) -> Iterator[bytes]:
    """Yield the name, then its numbered forms. Raises FileExistsError after the last number."""
    yield name
    for number in range(2, _LAST_NUMBER + 1):
        yield numbered(name, number, is_directory=is_directory)
    raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST))


def rename_beside(source: int, name: bytes, target: int, wanted: bytes, *, is_directory: bool) -> bytes:
    """Rename between two open directories to the first free form of a name, and return it."""
    for free in names_for(wanted, is_directory=is_directory):
        with suppress(FileExistsError):
            beneath.rename(source, name, target, free, replace=False)
            return free
    raise AssertionError("names_for ends with an error")
