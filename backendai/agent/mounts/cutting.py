"""Taking a folder out of kernels that run: a child process enters their mount namespaces and detaches it there.

Programs that still have something of the folder open, or stand in it, would go on: they are killed. One order comes as
JSON on the standard input, one answer goes to the standard output.
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
NOT_APART, NOT_ALLOWED, NOT_MOUNTED = "not-apart", "not-allowed", "not-mounted"


class Failed(Exception):
    """It cannot be cut off: a code."""


@dataclass(frozen=True, slots=True)
class Mounted:
    """A mount of the folder: its number, and where it is for the programs that see it."""

    number: str
    place: str


def main() -> None:
    """Carry out the order."""
    order = json.load(sys.stdin)
    try:
        answer: dict[str, Any] = {"ended": cut(order["pids"], order["folder"])}
    except Failed as error:
        answer = {"code": error.args[0]}
    json.dump(answer, sys.stdout)


def cut(pids: list[int], folder: str) -> int:
    """Detach the folder in every mount namespace of these processes, and kill who still uses it; returns how many.
    Raises Failed."""
    own = _space("self")
    spaces = {space: pid for pid in pids if (space := _space(pid)) not in ("", own)}
    if not spaces:
        raise Failed(NOT_APART)
    numbers: set[str] = set()
    for pid in spaces.values():
        numbers |= _detach_all(pid, folder)
    if not numbers:
        raise Failed(NOT_MOUNTED)
    ended: set[int] = set()
    for _ in range(_MOST_ROUNDS):  # who was starting another program when it was looked at is seen the next time
        users = {pid for pid in _pids() if _space(pid) in spaces and _uses(pid, numbers)} - ended
        if not users:
            break
        for pid in users:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        ended |= users
    return len(ended)


def _detach_all(pid: int, folder: str) -> set[str]:
    """Detach the folder where this process sees it; returns the numbers of the mounts that it was."""
    found: set[str] = set()
    for _ in range(_MOST_ROUNDS):
        there = list(_mounts_of(pid, folder))
        if not there:
            return found
        found |= {one.number for one in there}
        child = os.fork()  # who has entered another namespace does not come back
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
    """Enter the namespaces of a process; a user who made its user namespace may mount in there. Raises OSError."""
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
    """Yield the mounts that show something of the folder; its owner may have renamed what is above them."""
    mark = f"/{folder}/data"
    with contextlib.suppress(OSError):
        for line in Path(f"/proc/{pid}/mountinfo").read_text(errors="surrogateescape").splitlines():
            number, _, _, source, place = line.split(" ")[:5]
            if f"{_plain(source)}/".find(f"{mark}/") >= 0:
                yield Mounted(number, _plain(place))


def _uses(pid: int, numbers: set[str]) -> bool:
    """Return whether a process has something on these mounts open or mapped, or stands in them."""
    links = [Path(f"/proc/{pid}/{name}") for name in ("cwd", "root", "exe")]
    with contextlib.suppress(OSError):
        links += Path(f"/proc/{pid}/fd").iterdir()
    with contextlib.suppress(OSError):
        links += Path(f"/proc/{pid}/map_files").iterdir()
    return any(_mount_of(link) in numbers for link in links)


def _mount_of(link: Path) -> str:
    """Return the number of the mount that a link of /proc leads to."""
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
