"""Terminals in pods: a command with a terminal per client, ended when the client disconnects."""

from __future__ import annotations

import asyncio
import contextlib
import secrets
from collections.abc import Awaitable, Callable
from uuid import UUID

from backendai.agent.backends.base import SH, Terminal
from backendai.agent.backends.kubernetes.api.client import Api
from backendai.agent.backends.kubernetes.api.names import pod_name
from backendai.agent.backends.kubernetes.api.streams import PodCommand, output_of, run_command
from backendai.agent.backends.shared.terminals import FIND, MARK, TerminalClients, shell_command, tmux_name

# The API cannot set variables of a command in a pod.
_WITH_MARK = f'export {MARK}="$0" TERM=xterm-256color; exec "$@"'


class PodTerminals(TerminalClients):
    """Opens terminals in one agent's pods, and tracks the open ones. ``find`` raises KernelGone for an unknown
    kernel."""

    def __init__(self, api: Api, find: Callable[[UUID], object]) -> None:
        super().__init__()
        self._api, self._find = api, find
        self._terminals: dict[str, tuple[asyncio.AbstractEventLoop, PodTerminal]] = {}

    async def open(self, kernel_id: UUID, *, name: str, rows: int, cols: int) -> Terminal:
        """Return a terminal attached to the shell session ``name`` of a running kernel."""
        await asyncio.to_thread(self._find, kernel_id)
        mark = secrets.token_hex(8)
        command = [SH, "-c", _WITH_MARK, mark, *shell_command(name)]
        running = await run_command(self._api, pod_name(kernel_id), command, stdin=True, tty=True)
        self._open[mark] = kernel_id

        async def hang_up() -> None:
            await asyncio.to_thread(self._end, mark, running)

        async def find(does: str, text: str) -> None:
            await asyncio.to_thread(self._run, kernel_id, FIND, [tmux_name(name), does, text])

        terminal = PodTerminal(running, find, hang_up)
        self._terminals[mark] = asyncio.get_running_loop(), terminal
        await terminal.resize(rows, cols)
        return terminal

    def over(self, kernel_id: UUID) -> None:
        """End the terminals of a kernel that has ended, as their streams may not notice. Thread-safe."""
        for mark, kernel in list(self._open.items()):
            if kernel == kernel_id and (found := self._terminals.get(mark)) is not None:
                loop, terminal = found
                with contextlib.suppress(RuntimeError):  # the event loop has ended
                    asyncio.run_coroutine_threadsafe(terminal.end(), loop)

    def _end(self, mark: str, client: PodCommand) -> None:
        self._terminals.pop(mark, None)
        if client.exit_code is None:
            self._hang_up(mark)
        else:  # a command in a pod that is ending may hang until its deadline
            self._open.pop(mark, None)

    def _execute(self, kernel_id: UUID, command: list[str]) -> None:
        output_of(self._api, pod_name(kernel_id), command)


class PodTerminal(Terminal):
    """The stream of one command."""

    def __init__(
        self, running: PodCommand, find: Callable[[str, str], Awaitable[None]], hang_up: Callable[[], Awaitable[None]]
    ) -> None:
        self._running, self._find, self._hang_up = running, find, hang_up
        self._early: tuple[int, int] | None = None  # the size to repeat at the shell's start, as earlier ones are lost
        self._has_started = self._closed = False

    async def read(self) -> bytes:
        data = await self._running.read()
        if data and not self._has_started:
            self._has_started = True
            if self._early is not None:
                await self._running.resize(*self._early)
        return data

    async def write(self, data: bytes) -> None:
        await self._running.write(data)

    async def resize(self, rows: int, cols: int) -> None:
        if not self._has_started:
            self._early = (rows, cols)
        await self._running.resize(rows, cols)

    async def find(self, does: str, text: str) -> None:
        await self._find(does, text)

    async def end(self) -> None:
        """Let ``read`` report the shell's end."""
        await self._running.close()

    async def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        await self._running.close()
        await self._hang_up()
