"""Measures a kernel's home folder for a short time.

Its user may have filled it with any number and depth of files, and may change it meanwhile: the measurement is limited
and follows no links.
"""

from __future__ import annotations

import os
import stat
import time
from pathlib import Path

from backendai.base.wire.home import HomeLook

MOST_ENTRIES = 100_000
MOST_SECONDS = 1.5
_DEEPEST = 40  # the largest depth, which is the number of open descriptors
_BLOCK = 512
_PACKAGES = (".local", "lib")
_LEFT_OUT = (".cache",)  # caches are not worth keeping


def look_at_home(home: Path, *, seconds: float = MOST_SECONDS, entries: int = MOST_ENTRIES) -> HomeLook:
    """Return the folder's use. ``complete`` is False if the time or the number of entries was exceeded, or a part was
    unreadable. Raises OSError if the folder is missing."""
    home.stat()
    end, left = time.monotonic() + seconds, entries
    sizes = {True: 0, False: 0}
    packages, complete = 0, True

    def unreadable(_error: OSError) -> None:
        nonlocal complete
        complete = False

    for root, folders, files, descriptor in os.fwalk(home, onerror=unreadable):
        parts = Path(root).relative_to(home).parts
        left -= len(folders) + len(files)
        if left < 0 or time.monotonic() > end:
            complete = False
            break
        if not parts:
            folders[:] = [name for name in folders if name not in _LEFT_OUT]
        if len(parts) >= _DEEPEST and folders:
            folders.clear()
            complete = False
        is_of_pip = parts[: len(_PACKAGES)] == _PACKAGES
        packages += sum(is_of_pip and name.endswith(".dist-info") for name in folders)
        sizes[is_of_pip] += sum(_bytes_of(name, descriptor) for name in files)
    return HomeLook(home_bytes=sizes[False], pip_bytes=sizes[True], packages=packages, complete=complete)


def _bytes_of(name: str, folder: int) -> int:
    try:
        found = os.stat(name, dir_fd=folder, follow_symlinks=False)
    except OSError:  # deleted meanwhile
        return 0
    return found.st_blocks * _BLOCK if stat.S_ISREG(found.st_mode) else 0
