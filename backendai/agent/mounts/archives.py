"""Writes and reads archives of homes on a storage host, in a child process like ``child``.

The system's tar packs, and unpacks with the rights of the kernel's user: it keeps links and holes, and follows no link
that it has unpacked. Archives have no compression, so that unpacking fills no more disk than the archive. This process
tells the bytes so far once a second, as one line of JSON: an unresponsive server silences it.
"""

from __future__ import annotations

import errno
import json
import os
import select
import stat
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any
from uuid import UUID

from backendai.agent.mounts.child import REFUSED, Failed, execute, open_below
from backendai.base.core.slots import format_size
from backendai.base.paths.home_paths import BOOTSTRAP_PENDING
from backendai.base.paths.storage_layout import DATA, folder_path, read_marker

TOO_LARGE, MISSING, BROKEN = "home-too-large", "home-missing", "home-broken"
_CHUNK, _SYNCED = 2**20, 16 * 2**20
_TAR = {"PATH": os.defpath, "LC_ALL": "C"}
_PACK = (
    "tar", "--create", "--sparse", "--one-file-system", "--numeric-owner", "--format=posix",
    "--pax-option=delete=atime,delete=ctime", "--anchored", f"--exclude=./{BOOTSTRAP_PENDING}", ".",
)  # fmt: skip
_UNPACK = (
    "tar",
    "--extract",
    "--preserve-permissions",
    "--no-same-owner",
    "--no-overwrite-dir",
    "--delay-directory-restore",
)
_FULL = {errno.ENOSPC: "its disk is full", errno.EDQUOT: "its quota is used up"}
_FULL_WORDS = ("No space left on device", "Disk quota exceeded", "Wrote only")


def main() -> None:
    """Execute the order on standard input."""
    execute({"store": store, "unpack": unpack, "drop": drop})


def store(order: dict[str, Any]) -> dict[str, Any]:
    """Write the archive of a home, which nothing may change meanwhile, and return its size. The file gets its name when
    it is complete."""
    with _tar(_PACK, order["home"], stdout=subprocess.PIPE) as (tar, complaints), _as_owner(order) as data:
        _drop_parts(data, order["file"])
        part = f".{order['file']}.{os.getpid()}.part"
        try:
            file = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600, dir_fd=data)
            size = _copy(tar.stdout.fileno(), file, order["most_bytes"])
            _check(tar, complaints, "The home cannot be packed")
            os.fsync(file)
            os.rename(part, order["file"], src_dir_fd=data, dst_dir_fd=data)
            os.fsync(data)
        except BaseException as error:
            with suppress(OSError):
                os.unlink(part, dir_fd=data)
            if isinstance(error, OSError) and error.errno in _FULL:
                raise Failed(TOO_LARGE, f"Folder {order['name']} takes no more: {_FULL[error.errno]}.") from error
            raise
    return {"size": size}


def unpack(order: dict[str, Any]) -> dict[str, Any]:
    """Unpack an archive into a new home, as the user ``order["uid"]`` (None: the current user)."""
    with _as_owner(order) as data:
        try:
            file = os.open(order["file"], os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=data)
        except OSError as error:
            text = f"The archive of the home, {order['file']}, is not in folder {order['name']}: {error.strerror}."
            raise Failed(MISSING, text) from error
    if not stat.S_ISREG(os.fstat(file).st_mode):
        raise Failed(BROKEN, f"{order['file']} in folder {order['name']} is not a file.")
    with _tar(_UNPACK, order["home"], uid=order["uid"], stdin=subprocess.PIPE) as (tar, complaints):
        with suppress(BrokenPipeError):  # tar has ended: it says why
            _copy(file, tar.stdin.fileno(), None)
            tar.stdin.close()
        _check(tar, complaints, f"The archive of the home, {order['file']}, cannot be unpacked")
    return {}


def drop(order: dict[str, Any]) -> dict[str, Any]:
    """Delete incomplete archives of this name."""
    with _as_owner(order) as data:
        _drop_parts(data, order["file"])
    return {}


@contextmanager
def _as_owner(order: dict[str, Any]) -> Iterator[int]:
    """Yield a descriptor of the folder's data, which is accessed with the rights of the owner only: a server may not
    trust root, and counts the owner's quota. Raises Failed, StorageMissing."""
    root, me = Path(order["root"]), os.geteuid()
    owner = read_marker(root, host=order["host"], deployment=order["deployment"]).uid
    if me not in (0, owner):
        raise Failed(REFUSED, f"Its files belong to user {owner}; the agent runs as user {me}.")
    base = folder_path(root, UUID(order["folder"])) / DATA
    opened = open_below(str(root), str(base.relative_to(root)), order["name"])
    if me == 0:
        os.setgroups([])
        os.setegid(owner)
        os.seteuid(owner)
    try:
        yield os.open(".", os.O_RDONLY | os.O_DIRECTORY, dir_fd=opened)
    finally:
        if me == 0:
            os.seteuid(0)
            os.setegid(0)


@contextmanager
def _tar(
    command: Sequence[str],
    home: str,
    *,
    uid: int | None = None,
    stdin: int = subprocess.DEVNULL,
    stdout: int = subprocess.DEVNULL,
) -> Iterator[tuple[Any, IO[bytes]]]:
    """Run tar in the home, and kill it at the end. Yields its process and the file with its complaints."""
    with tempfile.TemporaryFile() as complaints:
        tar = subprocess.Popen(
            command,
            cwd=home,
            env=_TAR,
            stdin=stdin,
            stdout=stdout,
            stderr=complaints,
            user=uid,
            group=uid,
            extra_groups=None if uid is None else [],
        )
        try:
            yield tar, complaints
        finally:
            tar.kill()
            tar.wait()


def _check(tar: Any, complaints: IO[bytes], failed: str) -> None:
    """Wait for tar's end. Raises Failed with its first complaint."""
    if tar.wait():
        complaints.seek(0)
        words = complaints.read(2000).decode(errors="replace")
        if any(full in words for full in _FULL_WORDS):
            raise Failed(TOO_LARGE, f"{failed}: the disk of the new home is full.")
        raise Failed(BROKEN, f"{failed}: {words.partition(chr(10))[0].removeprefix('tar: ')}.")


def _copy(source: int, target: int, most: int | None) -> int:
    """Copy a stream to its end, telling the bytes so far; returns its length. Raises Failed above ``most`` bytes."""
    done = synced = 0
    told_at = 0.0
    while True:
        if time.monotonic() - told_at >= 1.0:
            told_at = time.monotonic()
            print(json.dumps({"done": done}), flush=True)  # noqa: T201  for the agent
        if not select.select([source], [], [], 1.0)[0]:
            continue
        if not (piece := os.read(source, _CHUNK)):
            return done
        done += len(piece)
        if most is not None and done > most:
            raise Failed(TOO_LARGE, f"The archive of the home would be larger than {format_size(most)}.")
        left = memoryview(piece)
        while left:
            left = left[os.write(target, left) :]
        if done - synced >= _SYNCED and stat.S_ISREG(os.fstat(target).st_mode):
            os.fdatasync(target)  # so that the last one is short, too
            synced = done


def _drop_parts(data: int, file: str) -> None:
    for name in os.listdir(data):
        if name.startswith(f".{file}.") and name.endswith(".part"):
            with suppress(FileNotFoundError):
                os.unlink(name, dir_fd=data)
