"""Terminals in containers: an exec with a tty per client, ended when the client disconnects.

The engine does not end an exec when its client disconnects; a second exec does (``terminal_scripts``).
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Callable
from uuid import UUID

from docker.errors import APIError, NotFound

from backendai.agent.backends.base import SH, BackendError, KernelGone, Terminal
from backendai.agent.backends.docker.create import WORKDIR
from backendai.agent.backends.docker.engine import Engine, container_name
from backendai.agent.backends.docker.stream import Stream, open_stream
from backendai.agent.backends.shared.home import WAIT
from backendai.agent.backends.shared.terminal_scripts import CLOSE_ALL_BUT, CLOSE_ONE, MARK, OPEN, SETTINGS, tmux_name
from backendai.agent.backends.shared.tmux import FIND

_RESIZE_TRIES = 20


class Terminals:
    """Opens terminals in one agent's containers, and tracks the open ones."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._open: dict[str, UUID] = {}
        self._clean: set[UUID] = set()

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

    def started(self, kernel_id: UUID) -> None:
        """Record that this agent started a kernel, so it has no clients of an earlier agent."""
        self._clean.add(kernel_id)

    def sweep(self, running: set[UUID]) -> None:
        """End the clients that a killed agent left in these kernels."""
        self._clean &= running
        for kernel_id in running - self._clean:
            ours = [mark for mark, kernel in list(self._open.items()) if kernel == kernel_id]
            if self._run(kernel_id, CLOSE_ALL_BUT, ours):
                self._clean.add(kernel_id)

    def _prepare(self, kernel_id: UUID, name: str, mark: str) -> str:
        with self._engine.asking() as client:
            if self._engine.find(kernel_id) is None:
                raise KernelGone("This kernel is no longer on its agent.")
            try:
                made = client.exec_create(
                    container_name(kernel_id),
                    [
                        SH,
                        "-c",
                        WAIT,
                        "wait",
                        WORKDIR,
                        SH,
                        "-c",
                        OPEN,
                        "terminal",
                        tmux_name(name),
                        WORKDIR,
                        SETTINGS,
                    ],
                    stdin=True,
                    tty=True,
                    environment={MARK: mark, "TERM": "xterm-256color"},
                )
            except (NotFound, APIError) as error:
                if error.status_code in (404, 409):
                    raise KernelGone("This kernel does not run any more.") from error
                raise
        return str(made["Id"])

    def _resize(self, exec_id: str, size: tuple[int, int]) -> bool:
        """Set the size; returns False while the engine refuses it, which it does until the shell runs."""
        with self._engine.asking() as client:
            try:
                client.exec_resize(exec_id, height=size[0], width=size[1])
            except APIError:
                return False
        return True

    def _hang_up(self, mark: str) -> None:
        kernel_id = self._open.pop(mark, None)
        if kernel_id is not None and not self._run(kernel_id, CLOSE_ONE, [mark]):
            self._clean.discard(kernel_id)  # the next sweep retries

    def _run(self, kernel_id: UUID, script: str, arguments: list[str]) -> bool:
        """Run a script in the kernel without waiting for its end; returns whether it was started, or is unnecessary."""
        try:
            with self._engine.asking() as client:
                command = [SH, "-c", script, "hang-up", *arguments]
                made = client.exec_create(container_name(kernel_id), command)
                client.exec_start(made["Id"], detach=True)
        except BackendError as error:
            return isinstance(error.__cause__, APIError) and error.__cause__.status_code in (404, 409)
        return True


class ExecTerminal(Terminal):
    """The stream of one exec."""

    def __init__(
        self,
        stream: Stream,
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
