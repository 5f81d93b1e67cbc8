"""The agent's side of a virtual machine's socket: streams, and short questions (see ``control_socket``)."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import json
import os
import socket
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from backendai.agent.backends.base import BackendError, Terminal
from backendai.agent.guest.link.sockets import connect

_SECONDS = 60.0  # an emulated program takes over a second to start
_PIECE = 64 * 1024
_LARGEST_ANSWER = 4 * 2**20
Find = Callable[[str, str], Sequence[str]]
_SILENT = "The virtual machine does not answer: {error}"


class ChannelRefused(BackendError):
    """The guest refuses to open the stream; ``number``: an errno."""

    def __init__(self, number: int) -> None:
        super().__init__("The virtual machine refuses: {error}.", error=os.strerror(number))
        self.number = number


class QemuTerminal(Terminal):
    """A pseudo-terminal in the guest; closing the connection hangs it up."""

    def __init__(
        self, folder: Path, stream: tuple[asyncio.StreamReader, asyncio.StreamWriter], number: int, find: Find
    ) -> None:
        self._folder, self._number, self._find = folder, number, find
        self._reader, self._writer = stream

    async def read(self) -> bytes:
        try:
            return await self._reader.read(_PIECE)
        except OSError:
            return b""

    async def write(self, data: bytes) -> None:
        with contextlib.suppress(OSError):
            self._writer.write(data)
            await self._writer.drain()

    async def resize(self, rows: int, cols: int) -> None:
        with contextlib.suppress(BackendError):
            order = {"resize": self._number, "rows": rows, "columns": cols}
            await asyncio.to_thread(ask, self._folder, order)

    async def find(self, does: str, text: str) -> None:
        await asyncio.to_thread(output_of, self._folder, self._find(does, text))

    async def close(self) -> None:
        with contextlib.suppress(OSError):
            self._writer.close()
            await self._writer.wait_closed()
        self._reader.feed_eof()


async def open_terminal(folder: Path, words: Sequence[str], *, find: Find, rows: int, cols: int) -> QemuTerminal:
    """Return a terminal with a program in it. ``find`` returns the command that searches for a text. Raises
    BackendError."""
    connection, number = await asyncio.to_thread(open_stream, folder, "p", [str(rows), str(cols), *words])
    connection.setblocking(False)
    return QemuTerminal(folder, await asyncio.open_connection(sock=connection), number, find)


def open_stream(folder: Path, letter: str, words: Sequence[str]) -> tuple[socket.socket, int]:
    """Open a stream to the guest; returns it and its number. Raises Refused, BackendError."""
    connection = _connected(folder)
    try:
        said = _said(connection, {"open": letter, "words": list(words)})
        if "refused" in said:
            raise ChannelRefused(int(said["refused"]))
        if "stream" not in said:
            raise BackendError(_SILENT, error=str(said.get("error", "it says nothing")))
    except BaseException:
        connection.close()
        raise
    return connection, int(said["stream"])


def output_of(folder: Path, words: Sequence[str]) -> tuple[bytes, int]:
    """Return output and exit code of a program in the guest. Raises BackendError."""
    connection, number = open_stream(folder, "x", words)
    with connection:
        connection.shutdown(socket.SHUT_WR)
        output = _all_of(connection)
    return output, int(ask(folder, {"ended": number}).get("exit_code") or 0)


def put_file(folder: Path, path: str, content: bytes) -> None:
    """Write a file in the guest atomically, as root. Raises BackendError."""
    try:
        connection, number = open_stream(folder, "w", [path, "644"])
    except ChannelRefused as refusal:
        raise _not_written(path, refusal.number) from refusal
    with connection, contextlib.suppress(OSError, BackendError):  # the guest disconnects if it cannot write
        connection.sendall(content)
        connection.shutdown(socket.SHUT_WR)
        _all_of(connection)
    code = ask(folder, {"ended": number}).get("exit_code")
    if code != 0:
        raise _not_written(path, errno.EPIPE if code is None else int(code))


def _not_written(path: str, number: int) -> BackendError:
    if number == errno.ENOSPC:
        text = "The disk of the session is full: {path} cannot be written. Delete files, or ask for more scratch space."
        return BackendError(text, path=path, code="scratch-full")
    return BackendError(
        "{path} cannot be written in the virtual machine: {error}.", path=path, error=os.strerror(number)
    )


def ask(folder: Path, question: dict[str, Any]) -> dict[str, Any]:
    """Return the answer to a question. Raises BackendError."""
    with _connected(folder) as connection:
        return _said(connection, question)


def _connected(folder: Path) -> socket.socket:
    try:
        return connect(folder / "door.sock", _SECONDS)
    except OSError as error:
        raise BackendError(_SILENT, error=str(error)) from error


def _said(connection: socket.socket, question: dict[str, Any]) -> dict[str, Any]:
    """Return the answer. Reads byte by byte to the end of its line, as the following bytes belong to the stream."""
    line = b""
    try:
        connection.sendall(json.dumps(question).encode() + b"\n")
        while not line.endswith(b"\n"):
            if not (byte := connection.recv(1)):
                break
            line += byte
        said: dict[str, Any] = json.loads(line or b"{}")
    except (OSError, ValueError) as error:
        raise BackendError(_SILENT, error=str(error)) from error
    return said


def _all_of(connection: socket.socket) -> bytes:
    """Return what the guest sends to its end, or the first part of it if that is more than an answer may have."""
    output = bytearray()
    try:
        while len(output) < _LARGEST_ANSWER and (piece := connection.recv(_PIECE)):
            output += piece
    except OSError as error:
        raise BackendError(_SILENT, error=str(error)) from error
    return bytes(output[:_LARGEST_ANSWER])
