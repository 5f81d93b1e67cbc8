"""The terminal of a simulated kernel: a shell with three commands that echoes everything else."""

from __future__ import annotations

import asyncio

from backendai.agent.backends.base import Terminal


class EchoTerminal(Terminal):
    """Knows ``echo``, ``stty size`` and ``exit``. Only ``hang_up`` is thread-safe."""

    def __init__(self, hostname: str, rows: int, cols: int) -> None:
        self._prompt = f"work@{hostname}:~$ ".encode()
        self._size = (rows, cols)
        self._loop = asyncio.get_running_loop()
        self._output: asyncio.Queue[bytes] = asyncio.Queue()
        self._typed = b""
        self._ended = False
        self._output.put_nowait(self._prompt)

    async def read(self) -> bytes:
        if self._ended and self._output.empty():
            return b""
        return await self._output.get()

    async def write(self, data: bytes) -> None:
        if self._ended:
            return
        data = data.replace(b"\r", b"\n")
        self._output.put_nowait(data.replace(b"\n", b"\r\n"))
        *lines, self._typed = (self._typed + data).split(b"\n")
        for line in lines:
            if line.strip() == b"exit":
                self._end()
                return
            answer = self._answer(line.strip())
            self._output.put_nowait((answer + b"\r\n" if answer else b"") + self._prompt)

    async def resize(self, rows: int, cols: int) -> None:
        self._size = (rows, cols)

    async def close(self) -> None:
        self._end()

    def hang_up(self) -> None:
        """End the terminal of a kernel that has ended."""
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._end)

    def _answer(self, line: bytes) -> bytes:
        if line == b"stty size":
            return "{} {}".format(*self._size).encode()
        return line.removeprefix(b"echo ")

    def _end(self) -> None:
        if not self._ended:
            self._ended = True
            self._output.put_nowait(b"")
