"""Writes the output of child processes.

It goes to the terminal with their name before each line, and to a rotating file each.
"""

from __future__ import annotations

import os
import re
import select
import sys
from io import FileIO
from pathlib import Path

_COLOURS = (36, 32, 35, 33, 34, 96, 92, 95)
_STALL_SECONDS = 1.0
_BEGINNING = re.compile(rb"(?:[\d-]{10} [\d:,]+ )?(DEBUG|INFO|WARNING|ERROR|CRITICAL)\b")
_TROUBLE = (b"WARNING", b"ERROR", b"CRITICAL")
_END = (b"Traceback", b"CommandError: ", b"SystemCheckError: ")  # what programs say before they give up


class Console:
    """The standard output of the supervisor.

    If it cannot be written (paused, closed), lines are lost there, but not in the log files. Unless ``verbose``, it
    shows only lines about problems.
    """

    def __init__(self, descriptor: int | None = None, *, verbose: bool = True) -> None:
        self._verbose = verbose
        self._in_trouble: dict[str, bool] = {}
        self._descriptor = sys.stdout.fileno() if descriptor is None else descriptor
        self._coloured = os.isatty(self._descriptor) and "NO_COLOR" not in os.environ
        self._names: list[str] = []
        self._stalled = False

    def line(self, name: str, text: bytes) -> None:
        """Write one line of the child ``name``, if it is to be shown."""
        if not self._verbose and not self._needs_attention(name, text):
            return
        if name not in self._names:
            self._names.append(name)
        prefix = f"{name:<9}| "
        if self._coloured:
            prefix = f"\x1b[{_COLOURS[self._names.index(name) % len(_COLOURS)]}m{prefix}\x1b[0m"
        self._write(prefix.encode() + text + b"\n")

    def say(self, text: str) -> None:
        """Write a text of the supervisor unchanged."""
        self._write(text.encode() + b"\n")

    def _needs_attention(self, name: str, text: bytes) -> bool:
        """Return whether the line is about a problem, or continues one (a traceback)."""
        if beginning := _BEGINNING.match(text):
            self._in_trouble[name] = beginning[1] in _TROUBLE
        elif text.startswith(_END):
            self._in_trouble[name] = True
        return self._in_trouble.get(name, False)

    def _write(self, data: bytes) -> None:
        try:
            writable = select.select([], [self._descriptor], [], 0 if self._stalled else _STALL_SECONDS)[1]
            self._stalled = not writable
            if writable:
                os.write(self._descriptor, data)
        except OSError:
            self._stalled = True


class LogFile:
    """A log file that rotates: when it is full, it is renamed to ``.1`` (and that to ``.2``)."""

    def __init__(self, path: Path, *, limit: int = 10_000_000, keep: int = 3) -> None:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._path, self._limit, self._keep = path, limit, keep
        self._file = _open_private(path)

    def write(self, data: bytes) -> None:
        """Append the data; it is lost if the disk is full."""
        try:
            if self._file.closed:  # the disk was full while the file was changed
                self._file = _open_private(self._path)
            if self._file.tell() + len(data) > self._limit:
                self._rotate()
            self._file.write(data)
        except OSError:
            return

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def _rotate(self) -> None:
        self._file.close()
        for number in range(self._keep - 1, 0, -1):
            older = self._numbered(number)
            if older.exists():
                older.replace(self._numbered(number + 1))
        self._path.replace(self._numbered(1))
        self._file = _open_private(self._path)

    def _numbered(self, number: int) -> Path:
        return self._path.with_name(f"{self._path.name}.{number}")


def _open_private(path: Path) -> FileIO:
    """Open a file that only its owner can read, as logs contain addresses and names of people."""
    descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
    os.fchmod(descriptor, 0o600)
    return FileIO(descriptor, "ab")
