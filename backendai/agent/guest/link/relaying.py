"""Runs a program for a remote client: its streams, and the frames that carry them over a connection."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import json
import os
import signal
import struct
import termios
from typing import Any, cast

from backendai.base.wire import guest_frames as frames

_PIECE = 64 * 1024
_HEAD = 5
_LOOK_SECONDS = 0.1
_LONGEST_SIDE = 10_000
_SIGNALS = frozenset(
    {"ABRT", "ALRM", "CONT", "HUP", "INT", "KILL", "PIPE", "QUIT", "STOP", "TERM", "TSTP", "USR1", "USR2", "WINCH"}
)


class File:
    """A non-blocking descriptor of a pipe or terminal."""

    def __init__(self, file: int) -> None:
        self._file: int | None = file
        os.set_blocking(file, False)

    def fileno(self) -> int:
        """Return the descriptor. Raises OSError if it is closed."""
        if self._file is None:
            raise OSError("closed")
        return self._file

    def read(self) -> bytes | None:
        """Return available bytes; empty bytes at the end; None if nothing is available yet."""
        try:
            return os.read(self.fileno(), _PIECE)
        except BlockingIOError:
            return None
        except OSError:  # EIO: no program has the terminal open
            return b""

    def write(self, data: bytes) -> bytes:
        """Write as many bytes as possible now; returns the rest. Ignores a reader that has ended."""
        try:
            return data[os.write(self.fileno(), data) :]
        except BlockingIOError:
            return data
        except OSError:
            return b""

    def close(self) -> None:
        """Close the descriptor. A second call does nothing."""
        if self._file is not None:
            os.close(self._file)
            self._file = None


class Started:
    """A program with its streams. ``outputs``: files with the kinds of their frames."""

    def __init__(self, process: asyncio.subprocess.Process, files: list[File], terminal: bool) -> None:
        self.process, self.is_terminal, self._files = process, terminal, files
        self.input: File = files[0]
        self.outputs = [(one, frames.STDOUT) for one in files[0 if terminal else 1 :][:1]]
        self.outputs += [(one, frames.STDERR) for one in files[2:]]

    def signal(self, name: str) -> None:
        """Send a signal to the terminal's foreground process group, else to the program's group."""
        if name not in _SIGNALS:
            return
        with contextlib.suppress(OSError):
            group = os.tcgetpgrp(self.input.fileno()) if self.is_terminal else self.process.pid
            os.killpg(group, getattr(signal, f"SIG{name}"))

    def resize(self, told: dict[str, Any]) -> None:
        """Set the terminal's size."""
        if self.is_terminal:
            set_size(self.input.fileno(), told)

    def close(self) -> None:
        """Send SIGHUP to the program's process group, and close its streams."""
        with contextlib.suppress(OSError):
            os.killpg(self.process.pid, signal.SIGHUP)
        if not self.is_terminal:
            with contextlib.suppress(OSError):
                os.killpg(self.process.pid, signal.SIGCONT)
        for file in self._files:
            file.close()


class Relay(asyncio.Protocol):
    """Copies frames of a connection to a program, and its output back, with backpressure.

    Each direction keeps its order and ends by itself: that of the client when its last frame is executed, that of the
    program with a farewell after its last output. ``has_left``: the client has sent its end or an invalid frame.
    ``is_silent``: the output has ended.

    It replaces the connection's stream protocol, as tasks would delay each typed character. That protocol still learns
    when the client is too slow: after ``close`` it is told when the client has caught up, and must know of what.
    """

    def __init__(self, program: Started, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._loop = asyncio.get_running_loop()
        self.has_left: asyncio.Future[None] = self._loop.create_future()
        self.is_silent: asyncio.Future[None] = self._loop.create_future()
        self._program, self._outputs, self._unsent = program, dict(program.outputs), b""
        self._is_full, self._passed = False, 0  # bytes of output
        self._connection = cast(asyncio.Transport, writer.transport)
        self._former = self._connection.get_protocol()
        self._connection.set_protocol(self)
        self._connection.resume_reading()
        kept: bytearray = reader._buffer  # type: ignore[attr-defined]
        self._heard = bytearray(kept)
        kept.clear()
        self._has_ended = reader.at_eof() or self._connection.is_closing()  # a reader that keeps bytes is never at eof
        self._read_output()
        self._obey()

    def data_received(self, data: bytes) -> None:
        """Execute the frames received so far."""
        self._heard += data
        self._obey()

    def eof_received(self) -> bool:
        """Record the client's end. The client has left when the frames before it are executed."""
        self._has_ended = True
        self._obey()
        return True

    def connection_lost(self, error: Exception | None) -> None:
        """Record that the client has disconnected."""
        self._ignore_output()
        self._leave()
        self._former.connection_lost(error)

    def pause_writing(self) -> None:
        """Stop reading output, as the client is too slow."""
        self._is_full = True
        self._ignore_output()
        self._former.pause_writing()

    def resume_writing(self) -> None:
        """Continue reading output."""
        self._is_full = False
        self._read_output()
        self._former.resume_writing()

    async def last_output(self, seconds: float, most: float) -> None:
        """Wait for the end of the output: until so many more bytes have passed, or so many seconds. Time in which the
        client is too slow does not count."""
        most += self._passed
        while seconds > 0 and self._passed <= most and not self.is_silent.done():
            await asyncio.wait([self.is_silent], timeout=_LOOK_SECONDS)
            seconds -= 0 if self._is_full else _LOOK_SECONDS

    def farewell(self, frame: bytes) -> None:
        """Send the last frame; later output is discarded."""
        self._ignore_output()
        self._outputs.clear()
        self._connection.write(frame)

    def close(self) -> None:
        """Restore the connection's former protocol."""
        self._ignore_output()
        self._outputs.clear()
        if self._unsent:
            self._loop.remove_writer(self._program.input.fileno())
        self._connection.set_protocol(self._former)

    def _ignore_output(self) -> None:
        for file in self._outputs:
            self._loop.remove_reader(file.fileno())

    def _read_output(self) -> None:
        for file in self._outputs:
            self._loop.add_reader(file.fileno(), self._pass_output, file)

    def _pass_output(self, file: File) -> None:
        data = file.read()
        if data:
            self._passed += len(data)
            self._connection.write(frames.frame(self._outputs[file], data))
        elif data is not None:
            self._loop.remove_reader(file.fileno())
            del self._outputs[file]
            if not self._outputs:
                self.is_silent.set_result(None)

    def _obey(self) -> None:
        """Execute received frames as long as the program accepts its input."""
        while not self._unsent and not self.has_left.done() and len(self._heard) >= _HEAD:
            size = int.from_bytes(self._heard[1:_HEAD], "big")
            if size > frames.LARGEST:
                self._leave()
            elif len(self._heard) < _HEAD + size:
                break
            else:
                kind, content = self._heard[0], bytes(self._heard[_HEAD : _HEAD + size])
                del self._heard[: _HEAD + size]
                self._carry_out(kind, content)
        if self._has_ended and not self._unsent:
            self._leave()

    def _carry_out(self, kind: int, content: bytes) -> None:
        program = self._program
        try:
            if kind == frames.INPUT and (content or program.is_terminal):
                self._give(content or b"\x04")
            elif kind == frames.INPUT:
                program.input.close()
            elif kind == frames.RESIZE:
                program.resize(dict(json.loads(content)))
            elif kind == frames.SIGNAL:
                program.signal(content.decode("ascii", "replace"))
        except (OSError, ValueError, TypeError, RecursionError, struct.error):
            self._leave()

    def _give(self, data: bytes) -> None:
        """Write input. If the program does not accept all of it, stop reading from the client."""
        self._unsent = self._program.input.write(data)
        if self._unsent:
            self._connection.pause_reading()
            self._loop.add_writer(self._program.input.fileno(), self._give_rest)

    def _give_rest(self) -> None:
        self._unsent = self._program.input.write(self._unsent)
        if not self._unsent:
            self._loop.remove_writer(self._program.input.fileno())
            self._obey()
            if not self._unsent and not self._connection.is_closing():
                self._connection.resume_reading()

    def _leave(self) -> None:
        if not self.has_left.done():
            self.has_left.set_result(None)


def set_size(file: int, told: dict[str, Any]) -> None:
    """Set a terminal's size."""
    sides = [min(max(int(told.get(name) or 0), 0), _LONGEST_SIDE) for name in ("rows", "cols", "width", "height")]
    fcntl.ioctl(file, termios.TIOCSWINSZ, struct.pack("HHHH", *sides))
