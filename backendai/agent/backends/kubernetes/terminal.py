"""Terminals in pods: a command with a terminal per client, ended when the client disconnects."""

from __future__ import annotations

import asyncio
import contextlib
import secrets
from collections.abc import Awaitable, Callable
from uuid import UUID

from backendai.agent.backends.base import SH, BackendError, KernelGone, Terminal
from backendai.agent.backends.docker.create import WORKDIR
from backendai.agent.backends.kubernetes.api.client import Api
from backendai.agent.backends.kubernetes.api.names import pod_name
from backendai.agent.backends.kubernetes.api.streams import Command, output_of, run_command
from backendai.agent.backends.shared.home import WAIT
from backendai.agent.backends.shared.terminal_scripts import CLOSE_ALL_BUT, CLOSE_ONE, MARK, OPEN, SETTINGS, tmux_name
from backendai.agent.backends.shared.tmux import FIND

# The API cannot set variables of a command in a pod.
_WITH_MARK = f'export {MARK}="$0" TERM=xterm-256color; exec "$@"'


class Terminals:
    """Opens terminals in one agent's pods, and tracks the open ones. ``find`` raises KernelGone for an unknown
    kernel."""

    def __init__(self, api: Api, find: Callable[[UUID], object]) -> None:
        self._api, self._find = api, find
        self._open: dict[str, UUID] = {}
        self._terminals: dict[str, tuple[asyncio.AbstractEventLoop, PodTerminal]] = {}
        self._clean: set[UUID] = set()

    async def open(self, kernel_id: UUID, *, name: str, rows: int, cols: int) -> Terminal:
        """Return a terminal attached to the shell session ``name`` of a running kernel."""
        await asyncio.to_thread(self._find, kernel_id)
        mark = secrets.token_hex(8)
        waiting = [SH, "-c", WAIT, "wait", WORKDIR]
        shell = [SH, "-c", OPEN, "terminal", tmux_name(name), WORKDIR, SETTINGS]
        command = [SH, "-c", _WITH_MARK, mark, *waiting, *shell]
        running = await run_command(self._api, pod_name(kernel_id), command, stdin=True, tty=True)
        self._open[mark] = kernel_id

        async def hang_up() -> None:
            await asyncio.to_thread(self._hang_up, mark, running)

        async def find(does: str, text: str) -> None:
            await asyncio.to_thread(self._run, kernel_id, FIND, [tmux_name(name), does, text])

        terminal = PodTerminal(running, find, hang_up)
        self._terminals[mark] = asyncio.get_running_loop(), terminal
        await terminal.resize(rows, cols)
        return terminal

    def started(self, kernel_id: UUID) -> None:
        """Record that this agent started a kernel, so it has no clients of an earlier agent."""
        self._clean.add(kernel_id)

    def over(self, kernel_id: UUID) -> None:
        """End the terminals of a kernel that has ended, as their streams may not notice. Thread-safe."""
        for mark, kernel in list(self._open.items()):
            if kernel == kernel_id and (found := self._terminals.get(mark)) is not None:
                loop, terminal = found
                with contextlib.suppress(RuntimeError):  # the event loop has ended
                    asyncio.run_coroutine_threadsafe(terminal.end(), loop)

    def sweep(self, running: set[UUID]) -> None:
        """End the clients that a killed agent left in these kernels."""
        self._clean &= running
        for kernel_id in running - self._clean:
            ours = [mark for mark, kernel in list(self._open.items()) if kernel == kernel_id]
            if self._run(kernel_id, CLOSE_ALL_BUT, ours):
                self._clean.add(kernel_id)

    def _hang_up(self, mark: str, client: Command) -> None:
        self._terminals.pop(mark, None)
        kernel_id = self._open.pop(mark, None)
        if client.exit_code is not None:  # a command in a pod that is ending may hang until its deadline
            return
        if kernel_id is not None and not self._run(kernel_id, CLOSE_ONE, [mark]):
            self._clean.discard(kernel_id)  # the next sweep retries

    def _run(self, kernel_id: UUID, script: str, arguments: list[str]) -> bool:
        """Run a script in the kernel; returns whether it was run, or is unnecessary."""
        try:
            output_of(self._api, pod_name(kernel_id), [SH, "-c", script, "hang-up", *arguments])
        except KernelGone:
            return True
        except BackendError:
            return False
        return True


class PodTerminal(Terminal):
    """The stream of one command."""

    def __init__(
        self, running: Command, find: Callable[[str, str], Awaitable[None]], hang_up: Callable[[], Awaitable[None]]
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
