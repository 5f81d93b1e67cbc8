"""Terminals of native kernels: the kernel's first process opens the shell and passes its pseudo-terminal on."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import json
import os
import socket
import struct
import termios
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from backendai.agent.backends.base import SH, BackendError, Terminal
from backendai.agent.backends.shared.terminals import FIND, tmux_name
from backendai.agent.guest.link.sockets import connect
from backendai.base.process.slowness import allowed

_TIMEOUT = 10.0
_PIECE = 64 * 1024


class PtyTerminal(Terminal):
    """The controlling side of a pseudo-terminal. Closing it hangs up the shell or tmux client."""

    def __init__(self, file: int, find: Callable[[str, str], object]) -> None:
        self._file: int | None = file
        self._find = find
        self._waits: set[asyncio.Future[None]] = set()
        os.set_blocking(file, False)

    async def read(self) -> bytes:
        while self._file is not None:
            try:
                return os.read(self._file, _PIECE)
            except BlockingIOError:
                await self._ready(for_input=True)
            except OSError:  # EIO: the other side is closed
                return b""
        return b""

    async def write(self, data: bytes) -> None:
        rest = memoryview(data)
        while rest and self._file is not None:
            try:
                rest = rest[os.write(self._file, rest) :]
            except BlockingIOError:
                await self._ready(for_input=False)
            except OSError:
                return

    async def resize(self, rows: int, cols: int) -> None:
        if self._file is not None:
            fcntl.ioctl(self._file, termios.TIOCSWINSZ, struct.pack("HHHH", rows, cols, 0, 0))

    async def find(self, does: str, text: str) -> None:
        await asyncio.to_thread(self._find, does, text)

    async def close(self) -> None:
        if self._file is None:
            return
        file, self._file = self._file, None
        loop = asyncio.get_running_loop()
        loop.remove_reader(file)
        loop.remove_writer(file)
        os.close(file)
        for wait in self._waits:
            _resolve(wait)

    async def _ready(self, *, for_input: bool) -> None:
        loop, file = asyncio.get_running_loop(), self._file
        assert file is not None
        wait: asyncio.Future[None] = loop.create_future()
        self._waits.add(wait)
        watch, unwatch = (loop.add_reader, loop.remove_reader) if for_input else (loop.add_writer, loop.remove_writer)
        watch(file, _resolve, wait)
        try:
            await wait
        finally:
            self._waits.discard(wait)
            if self._file is not None:
                unwatch(file)


def request_terminal(folder: Path, *, name: str, rows: int, cols: int) -> int:
    """Request a shell from the kernel's first process; returns the controlling side. Raises BackendError."""
    request = {"name": tmux_name(name), "rows": rows, "cols": cols}
    try:
        answer, files = _ask(folder, request)
    except (OSError, ValueError) as error:
        raise BackendError("The kernel does not open a terminal: {error}", error=str(error)) from error
    if len(files) == 1 and os.isatty(files[0]):
        return files[0]
    for file in files:
        os.close(file)
    raise BackendError("The kernel does not open a terminal: {error}", error=answer.get("error", "it sent none"))


def request_find(folder: Path, name: str, does: str, text: str) -> None:
    """Search for a text with tmux in the kernel. Raises BackendError."""
    request_program(folder, [SH, "-c", FIND, "find", tmux_name(name), does, text])


def request_program(folder: Path, argv: Sequence[str], environ: Mapping[str, str] | None = None) -> int:
    """Start a program by the kernel's first process; returns its pid, 0 if it is not told. Raises BackendError."""
    answer = _answer_to(folder, {"program": list(argv), "environ": dict(environ or {})})
    if not answer.get("started"):
        raise BackendError(
            "The kernel does not start the program: {error}", error=answer.get("error", "it says nothing")
        )
    # The kernel's own programs can send this answer instead of its first process, and leave out the pid.
    return pid if isinstance(pid := answer.get("pid"), int) else 0


def ask_exit_code(folder: Path, pid: int) -> int | None:
    """Return the exit code of a program started by ``request_program``; None while it runs. Raises BackendError."""
    code = _answer_to(folder, {"ended": pid}).get("exit_code")
    return int(code) if isinstance(code, int) else None


def _answer_to(folder: Path, request: dict[str, object]) -> dict[str, Any]:
    try:
        answer, files = _ask(folder, request)
    except (OSError, ValueError) as error:
        raise BackendError("The kernel does not start programs: {error}", error=str(error)) from error
    for file in files:
        os.close(file)
    return answer


def _resolve(wait: asyncio.Future[None]) -> None:
    if not wait.done():
        wait.set_result(None)


def _ask(folder: Path, request: dict[str, object]) -> tuple[dict[str, Any], list[int]]:
    """Return the answer, which is empty if it is no JSON object: programs of the kernel can answer in its place."""
    with connect(folder / "door.sock", allowed(_TIMEOUT)) as connection:
        connection.sendall(json.dumps(request).encode())
        data, files, _, _ = socket.recv_fds(connection, 4096, 4)
    answer: Any = None
    with contextlib.suppress(ValueError, RecursionError):
        answer = json.loads(data or b"{}")
    return answer if isinstance(answer, dict) else {}, files
