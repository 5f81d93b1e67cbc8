"""Starts programs of a run in their own process groups, and reads their output continuously."""

from __future__ import annotations

import array
import asyncio
import contextlib
import fcntl
import os
import signal
import termios
from pathlib import Path
from typing import Any, Callable  # noqa: UP035

from backendai.agent.guest.code.output import Decoder

_PIECE = 64 * 1024
_LAST_SECONDS = 1.0  # to read the pipes after the program's end, if other programs hold them open
Hear = Callable[[str, str], None]


def home_folder() -> str:
    """Return the home folder, or the root if it is missing."""
    home = os.environ.get("HOME") or "/"
    return home if Path(home).is_dir() else "/"


def start_folder() -> str:
    """Return the folder in which the session's programs start: the guest's own, by its name without links if known."""
    named = os.environ.get("PWD") or ""
    try:
        if os.path.isabs(named) and os.path.samefile(named, "."):  # noqa: PTH117, PTH121
            return named
        return os.getcwd()  # noqa: PTH109
    except OSError:  # deleted, or the folder was taken away
        return home_folder()


class Pipe:
    """The reading end of a program's output."""

    def __init__(self, file: int, kind: str, hear: Hear) -> None:
        self._file, self._kind, self._hear, self._decoder = file, kind, hear, Decoder()
        os.set_blocking(file, False)
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(file, self._read)
        self.ended: asyncio.Future[None] = self._loop.create_future()

    def drain(self) -> None:
        """Read the bytes written so far, but not more: a program may write endlessly."""
        if self.ended.done():
            return
        waiting = array.array("i", [0])
        fcntl.ioctl(self._file, termios.FIONREAD, waiting)
        left = waiting[0]
        while left > 0 and (count := self._read()):
            left -= count

    def close(self) -> None:
        """Stop reading. A second call does nothing."""
        if not self.ended.done():
            self._loop.remove_reader(self._file)
            os.close(self._file)
            self.ended.set_result(None)

    def _read(self) -> int:
        try:
            data = os.read(self._file, _PIECE)
        except BlockingIOError:
            return 0
        except OSError:
            data = b""
        if data:
            self._hear(self._kind, self._decoder.text(data))
        else:
            self.close()
        return len(data)


class Program:
    """A started program. ``hear`` receives kind (stdout, stderr) and text."""

    def __init__(self, process: asyncio.subprocess.Process, pipes: list[Pipe]) -> None:
        self._process, self._pipes = process, pipes
        self.pid = process.pid

    @property
    def is_alive(self) -> bool:
        """Whether the program itself still runs."""
        return self._process.returncode is None

    async def wait(self) -> int:
        """Wait for the program's end and output; returns the exit code (128 + number after a signal)."""
        code = await self._process.wait()
        await asyncio.wait([pipe.ended for pipe in self._pipes], timeout=_LAST_SECONDS)
        for pipe in self._pipes:
            pipe.close()
        return code if code >= 0 else 128 - code

    def drain(self) -> None:
        """Read the output written so far."""
        for pipe in self._pipes:
            pipe.drain()

    def write(self, text: str) -> None:
        """Write text to the program's standard input, if it is open."""
        if self._process.stdin is not None:
            with contextlib.suppress(OSError, RuntimeError):
                self._process.stdin.write(text.encode(errors="replace"))

    def signal(self, number: int) -> None:
        """Send a signal to the whole process group."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, number)

    def kill(self) -> None:
        """Kill the whole process group."""
        self.signal(signal.SIGKILL)


async def start(argv: list[str], hear: Hear, *, takes_input: bool = False, **options: Any) -> Program:
    """Start a program in its own session. Raises OSError."""
    ends = [os.pipe(), os.pipe()]
    try:
        process = await asyncio.create_subprocess_exec(
            *argv,
            stdin=asyncio.subprocess.PIPE if takes_input else asyncio.subprocess.DEVNULL,
            stdout=ends[0][1],
            stderr=ends[1][1],
            start_new_session=True,
            **options,
        )
    except BaseException:
        for reading, _ in ends:
            os.close(reading)
        raise
    finally:
        for _, writing in ends:
            os.close(writing)
    return Program(process, [Pipe(end[0], kind, hear) for end, kind in zip(ends, ("stdout", "stderr"))])  # noqa: B905


def memory_kills() -> int:
    """Return the number of out-of-memory kills in this kernel; 0 if it is unknown."""
    for name in ("memory.events", "memory/memory.oom_control"):
        with contextlib.suppress(OSError, ValueError):
            lines = Path("/sys/fs/cgroup", name).read_text().splitlines()
            return int(dict(line.split() for line in lines).get("oom_kill", 0))
    return 0


def memory_limit() -> int:
    """Return the kernel's memory limit in bytes; 0 if it is unlimited or unknown."""
    for name in ("memory.max", "memory/memory.limit_in_bytes"):
        with contextlib.suppress(OSError, ValueError):
            return int(Path("/sys/fs/cgroup", name).read_text())
    return 0
