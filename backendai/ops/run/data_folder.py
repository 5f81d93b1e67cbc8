"""The data folder of a one-machine installation.

It holds its lock, the record of its preparation, and the first administrator.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from backendai.settings.environment import RUNNING

STAMP = "prepared"
DEMO_MARK = "demo"  # a file in the data folder of a demonstration
_FIRST_ADMIN = "first-admin.json"
_SQLITE_SUFFIXES = ("", "-wal", "-shm", "-journal")
_PRIVATE, _PRIVATE_FOLDERS = 0o600, ("logs", "valkey")  # whose programs make files that everybody may read


class StartRefused(Exception):
    """The platform cannot start with these settings; the message has the reason and the remedy."""


@dataclass(frozen=True, slots=True)
class FirstAdmin:
    """The administrator created by the first start."""

    email: str
    password: str


def lock(data: Path) -> int:
    """Create the data folder if needed, and lock it for this process; return the lock's descriptor.

    Raises Refused if another start holds the lock, or the folder is not writable.
    """
    try:
        data.mkdir(parents=True, exist_ok=True, mode=0o700)
        descriptor = os.open(data / "up.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise StartRefused(
            f"The data folder {data} cannot be used: {error.strerror}. Choose another with --data DIR."
        ) from error
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        holder = os.read(descriptor, 32).decode().strip() or "unknown"
        os.close(descriptor)
        raise StartRefused(
            f"The platform already runs on {data} (process {holder}). "
            f"Stop it with: kill {holder}   or choose another folder with --data DIR."
        ) from error
    os.ftruncate(descriptor, 0)
    os.write(descriptor, f"{os.getpid()}\n".encode())
    for name in _PRIVATE_FOLDERS:
        (data / name).mkdir(exist_ok=True)
        (data / name).chmod(0o700)
    return descriptor


def demo_folder(data: Path, host: str) -> Path:
    """Return the data folder of the demonstration beside ``data``; creates and marks it.

    Raises StartRefused if the folder holds something else, or other machines could reach the demonstration: everybody
    who reaches it starts programs as this user.
    """
    if host not in ("127.0.0.1", "localhost", "::1"):
        raise StartRefused(f"--demo --host {host}: a demonstration has no passwords; it listens on 127.0.0.1 only.")
    folder = data.with_name(f"{data.name}-demo")
    if folder.exists() and any(folder.iterdir()) and not (folder / DEMO_MARK).exists():
        raise StartRefused(f"{folder} is not a demonstration. Move it away, or choose another folder with --data DIR.")
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    (folder / DEMO_MARK).touch()
    return folder


def make_database_private(database: Path) -> None:
    """Create the SQLite file if needed, and make it and its side files readable only for this user.

    SQLite gives later side files the mode of the first file.
    """
    database.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    os.close(os.open(database, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, _PRIVATE))
    for suffix in _SQLITE_SUFFIXES:
        with contextlib.suppress(FileNotFoundError):
            database.with_name(database.name + suffix).chmod(_PRIVATE)


def fingerprint(roots: Iterable[Path]) -> str:
    """Return a digest that changes when a source file under ``roots`` is added, removed or written."""
    digest = hashlib.sha256()
    for root in roots:
        for path in sorted(_files(root)):
            seen = path.stat()
            digest.update(f"{path}\0{seen.st_size}\0{seen.st_mtime_ns}\n".encode())
    return digest.hexdigest()


def is_prepared(data: Path, stamp: str) -> bool:
    """Return whether the last preparation of this folder was for ``stamp``."""
    try:
        return (data / STAMP).read_text() == stamp
    except FileNotFoundError:
        return False


def mark_prepared(data: Path, stamp: str) -> None:
    """Record that this folder is prepared for ``stamp``."""
    (data / STAMP).write_text(stamp)


def say_running(data: Path, told: Mapping[str, str]) -> None:
    """Write the ports, addresses and broker of this start to a file for other commands.

    The file is locked as long as this process lives, so that it is not trusted after a crash.
    """
    path = data / RUNNING
    path.unlink(missing_ok=True)
    # Private, for the broker's address may hold a password; never closed, for that would end the lock.
    running = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, _PRIVATE)
    fcntl.flock(running, fcntl.LOCK_EX)
    os.write(running, json.dumps(dict(told)).encode())


def say_stopped(data: Path) -> None:
    """Delete the file of ``say_running``."""
    (data / RUNNING).unlink(missing_ok=True)


def take_first_admin(data: Path) -> FirstAdmin | None:
    """Return the first administrator once, and delete the password from the folder. None if it was already taken."""
    path = data / _FIRST_ADMIN
    try:
        kept = json.loads(path.read_text())
        admin = FirstAdmin(kept["email"], kept["password"])
    except (FileNotFoundError, ValueError, KeyError):
        return None
    path.write_text(json.dumps({"email": admin.email}))
    return admin


def _files(root: Path) -> Iterator[Path]:
    if root.is_file():
        yield root
    for folder, _, names in os.walk(root):
        if not folder.endswith("__pycache__"):
            yield from (Path(folder, name) for name in names)
