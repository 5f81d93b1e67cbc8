"""The part of the backend contract about bytes: logs and terminals (see ``backend_contract``)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import ClassVar
from uuid import UUID, uuid4

import pytest

from backendai.agent.backends.abilities import Streaming
from backendai.agent.backends.base import Backend, KernelGone
from tests.agent.contract_tools import NewSpec, ask, ended_of, needs, read_until
from tests.patience import patient, until


class StreamContract:
    """Reading and following logs, opening, resizing, leaving and resuming terminals."""

    prints_5_lines = "for line in 1 2 3 4 5; do echo line-$line; done"
    # Bytes that are no text, a progress bar, and a line of 27 000 bytes in characters of three.
    prints_odd_lines = (
        r"printf '\377\376\233\n1%%\r2%%\r3%%\v\n'; yes 日 | head -n 9000 | tr -d '\n'; printf '\nlast\n'"
    )
    odd_lines: ClassVar = [b"\xff\xfe\x9b\n", b"1%\r2%\r3%\x0b\n", "日".encode() * 9000 + b"\n", b"last\n"]
    prints_then_waits = "echo first; while [ ! -e go ]; do sleep 0.1; done; echo last"
    lets_it_go_on = b"touch go\n"
    question, answer = b"echo mark-$((40 + 2))\n", b"mark-42"
    size_question, size_answer = b"stty size\n", b"37 111"
    remember, recall, recalled = b"kept=mar; echo set-$kept\n", b"echo ${kept}k-back\n", b"mark-back"
    keeps_terminals = False

    @pytest.fixture(autouse=True)
    def only_what_it_can(self, request: pytest.FixtureRequest, backend: Backend) -> None:
        """Leave out the questions about abilities that the backend does not claim."""
        ability = getattr(request.function, "needs", Backend)
        if not isinstance(backend, ability):
            pytest.skip(f"{backend.name} is not {ability.__name__}")

    def clients_of(self, backend: Backend, kernel_id: UUID) -> int:
        """Return how many terminal client processes there are in the kernel."""
        return 0

    def test_it_reads_the_end_of_a_log_and_says_whether_that_is_all(
        self, backend: Streaming, new_spec: NewSpec
    ) -> None:
        spec = new_spec(session_type="batch", command=self.prints_5_lines)
        backend.start(spec)
        ended_of(backend, spec.kernel_id)
        whole, cut = backend.read_log(spec.kernel_id, limit=10_000)
        assert not cut
        assert whole.endswith(b"line-1\nline-2\nline-3\nline-4\nline-5\n")
        assert backend.read_log(spec.kernel_id, limit=14) == (b"line-4\nline-5\n", True)
        assert backend.read_log(spec.kernel_id, limit=len(whole)) == (whole, False)

    def test_it_reads_nothing_from_a_kernel_that_is_gone(self, backend: Streaming) -> None:
        assert backend.read_log(uuid4(), limit=100) == (b"", False)

    @needs(Streaming)
    @pytest.mark.asyncio
    async def test_it_follows_a_log_until_the_kernel_ends(self, backend: Streaming, new_spec: NewSpec) -> None:
        spec = new_spec(session_type="batch", command=self.prints_then_waits)
        await asyncio.to_thread(backend.start, spec)
        seen = b""
        async with asyncio.timeout(patient(30)):
            async for piece in backend.follow_log(spec.kernel_id, tail=None, follow=True):
                seen += piece
                if b"first" in seen and b"last" not in seen:
                    await self._let_it_go_on(backend, spec.kernel_id)
        assert seen.endswith(b"first\nlast\n")

    @needs(Streaming)
    @pytest.mark.asyncio
    async def test_it_shows_only_the_last_lines_when_told_so(self, backend: Streaming, new_spec: NewSpec) -> None:
        spec = new_spec(session_type="batch", command=self.prints_5_lines)
        await asyncio.to_thread(backend.start, spec)
        await asyncio.to_thread(ended_of, backend, spec.kernel_id)
        pieces = [piece async for piece in backend.follow_log(spec.kernel_id, tail=2, follow=False)]
        assert b"".join(pieces) == b"line-4\nline-5\n"

    @needs(Streaming)
    @pytest.mark.asyncio
    async def test_a_log_has_the_bytes_and_the_lines_of_the_program(
        self, backend: Streaming, new_spec: NewSpec
    ) -> None:
        if not self.prints_odd_lines:
            pytest.skip("its programs print one thing only")
        spec = new_spec(session_type="batch", command=self.prints_odd_lines)
        await asyncio.to_thread(backend.start, spec)
        await asyncio.to_thread(ended_of, backend, spec.kernel_id)
        lines = self.odd_lines
        kept = await asyncio.to_thread(backend.read_log, spec.kernel_id, limit=10**6)
        assert kept == (b"".join(lines), False)
        for count in range(1, 7):
            pieces = [piece async for piece in backend.follow_log(spec.kernel_id, tail=count, follow=True)]
            assert b"".join(pieces) == b"".join(lines[-count:]), count

    @needs(Streaming)
    @pytest.mark.asyncio
    async def test_it_answers_what_is_typed_in_a_terminal(self, backend: Streaming, new_spec: NewSpec) -> None:
        spec = new_spec()
        await asyncio.to_thread(backend.start, spec)
        terminal = await backend.open_terminal(spec.kernel_id, name="one", rows=24, cols=80)
        try:
            await ask(terminal, self.question, self.answer)
            await terminal.resize(37, 111)
            await ask(terminal, self.size_question, self.size_answer)
        finally:
            await terminal.close()

    @needs(Streaming)
    @pytest.mark.asyncio
    async def test_it_shows_the_windows_of_tmux_from_the_second_one_on(
        self, backend: Streaming, new_spec: NewSpec
    ) -> None:
        if not self.keeps_terminals:
            pytest.skip("its shells are not kept by tmux")
        spec = new_spec()
        await asyncio.to_thread(backend.start, spec)
        terminal = await backend.open_terminal(spec.kernel_id, name="one", rows=24, cols=80)
        rows = b"windows: $(tmux display -p '#{window_height} of #{session_windows}')\r"
        try:
            await ask(terminal, b"echo " + rows, b"windows: 24 of 1")
            await terminal.write(b"\x02c")
            await ask(terminal, b"echo " + rows, b"windows: 23 of 2")
            await terminal.write(b"exit\r")
            await ask(terminal, b"echo " + rows, b"windows: 24 of 1")
        finally:
            await terminal.close()

    @needs(Streaming)
    @pytest.mark.asyncio
    async def test_a_viewer_sees_the_shell_and_neither_types_in_it_nor_changes_its_size(
        self, backend: Streaming, new_spec: NewSpec
    ) -> None:
        if not self.keeps_terminals:
            pytest.skip("its shells are not kept by tmux")
        spec = new_spec()
        await asyncio.to_thread(backend.start, spec)
        owner = await backend.open_terminal(spec.kernel_id, name="one", rows=24, cols=80)
        await ask(owner, b"echo up: $((40+2))\r", b"up: 42")
        viewer = await backend.open_terminal(spec.kernel_id, name="view-one", rows=20, cols=70)
        try:
            seen = await read_until(viewer, b"up: 42")
            await viewer.write(b"echo typed: $((1+1))\r\x02d")
            await ask(owner, b"echo size: $(tmux display -p '#{window_height}x#{window_width}')\r", b"size: 24x80")
            seen += await read_until(viewer, b"size: 24x80")
            assert b"typed:" not in seen
        finally:
            await viewer.close()
            await owner.close()

    @needs(Streaming)
    @pytest.mark.asyncio
    async def test_it_leaves_no_client_behind_a_closed_terminal(self, backend: Streaming, new_spec: NewSpec) -> None:
        spec = new_spec()
        await asyncio.to_thread(backend.start, spec)
        before = self.clients_of(backend, spec.kernel_id)
        terminal = await backend.open_terminal(spec.kernel_id, name="one", rows=24, cols=80)
        await ask(terminal, self.question, self.answer)
        await terminal.close()
        await terminal.close()
        await asyncio.to_thread(until, lambda: self.clients_of(backend, spec.kernel_id) == before)

    @needs(Streaming)
    @pytest.mark.asyncio
    async def test_it_can_be_attached_again_after_a_hang_up(self, backend: Streaming, new_spec: NewSpec) -> None:
        spec = new_spec()
        await asyncio.to_thread(backend.start, spec)
        first = await backend.open_terminal(spec.kernel_id, name="one", rows=24, cols=80)
        await ask(first, self.remember, b"set-mar")
        await first.close()
        again = await backend.open_terminal(spec.kernel_id, name="one", rows=24, cols=80)
        try:
            if self.keeps_terminals:
                await ask(again, self.recall, self.recalled)
            else:
                await ask(again, self.question, self.answer)
        finally:
            await again.close()

    @needs(Streaming)
    @pytest.mark.asyncio
    async def test_it_reads_nothing_more_when_the_shell_has_ended(self, backend: Streaming, new_spec: NewSpec) -> None:
        spec = new_spec()
        await asyncio.to_thread(backend.start, spec)
        terminal = await backend.open_terminal(spec.kernel_id, name="one", rows=24, cols=80)
        try:
            await ask(terminal, self.question, self.answer)
            await terminal.write(b"exit\n")
            async with asyncio.timeout(patient(30)):
                while await terminal.read():
                    pass
            assert await terminal.read() == b""
        finally:
            await terminal.close()

    @needs(Streaming)
    @pytest.mark.asyncio
    async def test_it_opens_no_terminal_in_a_kernel_that_is_gone(self, backend: Streaming) -> None:
        with pytest.raises(KernelGone):
            await backend.open_terminal(uuid4(), name="one", rows=24, cols=80)

    @needs(Streaming)
    @pytest.mark.asyncio
    async def test_it_ends_the_terminal_of_a_kernel_that_is_removed(
        self, backend: Streaming, new_spec: NewSpec
    ) -> None:
        spec = new_spec()
        await asyncio.to_thread(backend.start, spec)
        terminal = await backend.open_terminal(spec.kernel_id, name="one", rows=24, cols=80)
        await ask(terminal, self.question, self.answer)
        await asyncio.to_thread(backend.remove, spec.kernel_id)
        async with asyncio.timeout(patient(30)):
            while await terminal.read():
                pass
        await terminal.close()

    @needs(Streaming)
    @pytest.mark.asyncio
    async def test_it_sweeps_away_the_clients_left_by_a_killed_agent(
        self, backend: Backend, reopened: Callable[[], Backend], new_spec: NewSpec
    ) -> None:
        spec = new_spec()
        await asyncio.to_thread(backend.start, spec)
        before = self.clients_of(backend, spec.kernel_id)
        lost = await backend.open_terminal(spec.kernel_id, name="one", rows=24, cols=80)
        await ask(lost, self.question, self.answer)
        again = reopened()
        await asyncio.to_thread(again.sweep, {spec.kernel_id})
        # At most: a program that the start of the kernel runs may have counted.
        await asyncio.to_thread(until, lambda: self.clients_of(backend, spec.kernel_id) <= before)
        await lost.close()

    async def _let_it_go_on(self, backend: Backend, kernel_id: UUID) -> None:
        terminal = await backend.open_terminal(kernel_id, name="go", rows=24, cols=80)
        await ask(terminal, self.question, self.answer)
        await terminal.write(self.lets_it_go_on + b"exit\n")
        while await terminal.read():
            pass
        await terminal.close()
