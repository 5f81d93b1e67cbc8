"""Private folders of sockets, for data folders whose paths are too long for one.

The process that uses a folder holds a lock on it, so that other starts can delete those of runs that were killed.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import socket
import stat
from collections.abc import Iterator
from pathlib import Path

from backendai.ops.run.data_folder import Refused

_MARK = re.compile(r"[0-9a-f]{12}")
_CONNECT_TIMEOUT = 1.0


@contextlib.contextmanager
def socket_folder(base: Path, mark: str) -> Iterator[Path]:
    """Create and lock the folder of this mark (12 hexadecimal digits); delete it with its sockets at the end. Raises
    Refused."""
    path = base / f"{_prefix()}{mark}"
    descriptor = _create(path)
    try:
        yield path
    finally:
        _delete(path)
        os.close(descriptor)


def sweep(base: Path) -> None:
    """Delete the user's folders whose runs have ended without deleting them."""
    for path in base.glob(f"{_prefix()}*"):
        if not _MARK.fullmatch(path.name.removeprefix(_prefix())):
            continue
        with contextlib.suppress(OSError):
            descriptor = _open(path)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                # Earlier versions took no lock: their folder is in use while a server listens.
                if _is_private(os.fstat(descriptor)) and not any(_listens(one) for one in path.iterdir()):
                    _delete(path)
            finally:
                os.close(descriptor)


def _prefix() -> str:
    return f"backendai-{os.getuid()}-"


def _create(path: Path) -> int:
    """Return the descriptor that holds the lock. Another run may delete the folder before it is locked."""
    while True:
        with contextlib.suppress(FileNotFoundError):
            path.mkdir(mode=0o700, exist_ok=True)
            if not _is_private(path.lstat()):
                raise Refused(
                    f"{path} is not a private folder of this user. Remove it, or choose a shorter --data path."
                )
            descriptor = _open(path)
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            if os.fstat(descriptor).st_nlink:
                return descriptor
            os.close(descriptor)


def _open(path: Path) -> int:
    return os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)


def _is_private(seen: os.stat_result) -> bool:
    return stat.S_ISDIR(seen.st_mode) and seen.st_uid == os.getuid() and not seen.st_mode & 0o077


def _listens(path: Path) -> bool:
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(_CONNECT_TIMEOUT)
        try:
            connection.connect(str(path))
        except (FileNotFoundError, ConnectionRefusedError):
            return False
        except OSError:  # a server that is busy
            return True
    return True


def _delete(path: Path) -> None:
    with contextlib.suppress(OSError):
        for one in path.iterdir():
            if one.is_socket():
                one.unlink()
        path.rmdir()
