"""Terminals in containers: an exec with a tty per client, ended when the client disconnects.

The engine does not end an exec when its client disconnects; a second exec does (``shared.terminals``).
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Callable
from uuid import UUID

from docker.errors import APIError

from backendai.agent.backends.base import Terminal
from backendai.agent.backends.docker.engine import Engine
from backendai.agent.backends.docker.stream import EngineStream, open_stream
from backendai.agent.backends.shared.terminals import FIND, MARK, TerminalClients, shell_command, tmux_name

_RESIZE_TRIES = 20


class DockerTerminals(TerminalClients):
    """Opens terminals in one agent's containers, and tracks the open ones."""

    def __init__(self, engine: Engine) -> None:
        super().__init__()
        self._engine = engine

    async def open(self, kernel_id: UUID, *, name: str, rows: int, cols: int) -> Terminal:
        """Return a terminal attached to the shell session ``name`` of a running kernel."""
        mark = secrets.token_hex(8)
        exec_id = await asyncio.to_thread(self._prepare, kernel_id, name, mark)
        path = f"/v{self._engine.api_version}/exec/{exec_id}/start"
        stream = await open_stream(self._engine.url, "POST", path, {"Tty": True, "Detach": False})
        self._open[mark] = kernel_id

        def find(does: str, text: str) -> None:
            self._run(kernel_id, FIND, [tmux_name(name), does, text])

        terminal = ExecTerminal(stream, lambda size: self._resize(exec_id, size), find, lambda: self._hang_up(mark))
        await terminal.resize(rows, cols)
        return terminal

    def _prepare(self, kernel_id: UUID, name: str, mark: str) -> str:
        with self._engine.asking():
            self._engine.running(kernel_id)
            environ = {MARK: mark, "TERM": "xterm-256color"}
            return self._engine.make_exec(kernel_id, shell_command(name), stdin=True, tty=True, environment=environ)

    def _resize(self, exec_id: str, size: tuple[int, int]) -> bool:
        """Set the size; returns False while the engine refuses it, which it does until the shell runs."""
        with self._engine.asking() as client:
            try:
                client.exec_resize(exec_id, height=size[0], width=size[1])
            except APIError:
                return False
        return True

    def _execute(self, kernel_id: UUID, command: list[str]) -> None:
        with self._engine.asking():
            self._engine.make_exec(kernel_id, command, starts=True)


class ExecTerminal(Terminal):
    """The stream of one exec."""

    def __init__(
        self,
        stream: EngineStream,
        resize: Callable[[tuple[int, int]], bool],
        find: Callable[[str, str], None],
        hang_up: Callable[[], None],
    ) -> None:
        self._stream = stream
        self._resize = resize
        self._find = find
        self._hang_up = hang_up
        self._closed = False

    async def read(self) -> bytes:
        return await self._stream.read()

    async def write(self, data: bytes) -> None:
        await self._stream.write(data)  # read() reports the shell's end

    async def resize(self, rows: int, cols: int) -> None:
        for _ in range(_RESIZE_TRIES):
            if self._closed or await asyncio.to_thread(self._resize, (rows, cols)):
                return
            await asyncio.sleep(0.02)

    async def find(self, does: str, text: str) -> None:
        await asyncio.to_thread(self._find, does, text)

    async def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        await self._stream.close()
        await asyncio.to_thread(self._hang_up)
