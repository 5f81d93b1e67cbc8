"""Unmounts a folder in running kernels: a child process enters their mount namespaces and detaches it.

Programs with open files or a working directory in the folder could go on using it, so they are killed. Reads one order
as JSON from standard input and writes one answer to standard output.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import re
import signal
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from backendai.agent.mounts import calls

_NEWNS, _NEWUSER = 0x00020000, 0x10000000
_ESCAPED = re.compile(r"\\([0-7]{3})")
_MOST_ROUNDS = 5
_LIBC = ctypes.CDLL(None, use_errno=True)
NOT_APART, NOT_ALLOWED, NOT_MOUNTED, NOT_SEEN = "not-apart", "not-allowed", "not-mounted", "not-seen"


class Failed(Exception):
    """The folder cannot be unmounted; the argument is a code."""


@dataclass(frozen=True, slots=True)
class Mounted:
    """A mount of the folder: its mount id, and its path inside the namespace."""

    number: str
    place: str


def main() -> None:
    """Execute the order on standard input."""
    order = json.load(sys.stdin)
    try:
        answer: dict[str, Any] = {"ended": cut(order["pids"], order["folder"])}
    except Failed as error:
        answer = {"code": error.args[0]}
    json.dump(answer, sys.stdout)


def cut(pids: list[int], folder: str) -> int:
    """Detach the folder in all mount namespaces of these processes and kill its users; returns their number. Raises
    Failed."""
    own = _space("self")
    spaces = {space: pid for pid in pids if (space := _space(pid)) not in ("", own)}
    if not spaces:
        raise Failed(_why_no_space(pids, own))
    numbers: set[str] = set()
    for pid in spaces.values():
        numbers |= _detach_all(pid, folder)
    if not numbers:
        raise Failed(NOT_MOUNTED)
    ended: set[int] = set()
    for _ in range(_MOST_ROUNDS):  # another round finds processes that were starting programs
        users = {pid for pid in _pids() if _space(pid) in spaces and _uses(pid, numbers)} - ended
        if not users:
            break
        for pid in users:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        ended |= users
    return len(ended)


def _why_no_space(pids: list[int], own: str) -> str:
    """Return the code of the reason why no process has a mount namespace that can be entered."""
    if any(_space(pid) == own for pid in pids):
        return NOT_APART
    # An agent in a container has a /proc of its own: the engine's process ids mean nothing there.
    return NOT_ALLOWED if any(Path(f"/proc/{pid}").exists() for pid in pids) else NOT_SEEN


def _detach_all(pid: int, folder: str) -> set[str]:
    """Detach the folder in this process's namespace; returns the ids of the detached mounts."""
    found: set[str] = set()
    for _ in range(_MOST_ROUNDS):
        there = list(_mounts_of(pid, folder))
        if not there:
            return found
        found |= {one.number for one in there}
        child = os.fork()  # a process cannot leave the namespace again
        if child == 0:
            try:
                _enter(pid)
                for one in sorted(there, key=lambda one: -len(one.place)):
                    calls.detach(one.place)
            except OSError:
                os._exit(1)
            os._exit(0)
        if os.waitpid(child, 0)[1]:
            break
    raise Failed(NOT_ALLOWED)


def _enter(pid: int) -> None:
    """Enter a process's mount namespace; without root rights, its user namespace first. Raises OSError."""
    space = os.open(f"/proc/{pid}/ns/mnt", os.O_RDONLY)
    if os.geteuid() != 0:
        user = os.open(f"/proc/{pid}/ns/user", os.O_RDONLY)
        _check(_LIBC.setns(user, _NEWUSER))
    _check(_LIBC.setns(space, _NEWNS))


def _check(result: int) -> None:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


def _mounts_of(pid: int, folder: str) -> Iterator[Mounted]:
    """Yield the mounts of the folder or its parts. Recognises the end of the path, as directories above may have been
    renamed."""
    mark = f"/{folder}/data"
    with contextlib.suppress(OSError):
        for line in Path(f"/proc/{pid}/mountinfo").read_text(errors="surrogateescape").splitlines():
            number, _, _, source, place = line.split(" ")[:5]
            if f"{_plain(source)}/".find(f"{mark}/") >= 0:
                yield Mounted(number, _plain(place))


def _uses(pid: int, numbers: set[str]) -> bool:
    """Return whether a process has open or mapped files, or its working directory or root, on these mounts."""
    links = [Path(f"/proc/{pid}/{name}") for name in ("cwd", "root", "exe")]
    with contextlib.suppress(OSError):
        links += Path(f"/proc/{pid}/fd").iterdir()
    with contextlib.suppress(OSError):
        links += Path(f"/proc/{pid}/map_files").iterdir()
    return any(_mount_of(link) in numbers for link in links)


def _mount_of(link: Path) -> str:
    """Return the id of the mount that a link in /proc leads to; empty if it is gone."""
    try:
        descriptor = os.open(link, os.O_PATH | os.O_CLOEXEC)
    except OSError:
        return ""
    try:
        told = Path(f"/proc/self/fdinfo/{descriptor}").read_text()
    finally:
        os.close(descriptor)
    return told.partition("mnt_id:")[2].split()[0]


def _space(pid: int | str) -> str:
    try:
        return os.readlink(f"/proc/{pid}/ns/mnt")  # noqa: PTH115  a name, no path
    except OSError:
        return ""


def _pids() -> list[int]:
    return [int(path.name) for path in Path("/proc").iterdir() if path.name.isdigit()]


def _plain(path: str) -> str:
    return _ESCAPED.sub(lambda found: chr(int(found[1], 8)), path)
