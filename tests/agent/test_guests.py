"""Running code in simulated and native kernels: the contract."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Iterator
from pathlib import Path
from uuid import UUID

import pytest

from backendai.agent.backends import process_start
from backendai.agent.backends.base import Backend
from backendai.agent.backends.process import IMAGE, ProcessBackend
from backendai.agent.backends.process_sandbox import Isolation
from backendai.agent.backends.simulated import Pace, SimulatedBackend
from backendai.core.slots import Slots
from tests.agent.guest_contract import Asker, GuestContract, ProgramContract, text_of
from tests.agent.specs import make_spec
from tests.agent.test_process_backend import data, isolation  # noqa: F401


@pytest.fixture
def kernel(backend: Backend) -> Iterator[UUID]:
    slots = {"cpu": "1", "mem": str(2**30)}
    spec = make_spec(slots=slots, image=IMAGE if isinstance(backend, ProcessBackend) else "simulated/python")
    backend.start(spec)
    yield spec.kernel_id
    backend.remove(spec.kernel_id)


class TestSimulated(GuestContract):
    sleeps = "sleep 60"

    @pytest.fixture
    def backend(self) -> Iterator[Backend]:
        capacity = Slots({"cpu": 4000, "mem": 2**40})
        backend = SimulatedBackend(deployment="test", capacity=capacity, pace=Pace(time_scale=0))
        yield backend
        backend.close()


class TestNative(ProgramContract):
    addresses = ("127.0.0.1", "0.0.0.0", "::1", "::")

    @pytest.fixture
    def backend(self, data: Path, isolation: Isolation) -> Iterator[Backend]:  # noqa: F811
        assert process_start is not None
        backend = ProcessBackend(data / "agent", deployment="test", agent="n1")
        yield backend
        backend.close()

    def test_ports_of_others_on_this_machine_are_not_opened(self, asker: Asker) -> None:
        async def walk() -> None:
            with socket.create_server(("127.0.0.1", 0)) as foreign:
                refused = await asker.ask("dial", port=foreign.getsockname()[1])
            assert refused["error"]["code"] == "app-not-listening"

        asyncio.run(walk())

    @pytest.mark.long
    def test_a_million_flushed_lines_arrive(self, asker: Asker) -> None:
        async def walk() -> None:
            told = await asker.ask("run", code="for n in range(1_000_000): print('line', n, flush=True)")
            text, after = [], 0
            while told["state"] not in ("FINISHED", "LOST") or after < told["end"]:
                told = await asker.ask("read", run_id=told["run_id"], after=after, wait=20)
                text.append(text_of(told))
                after = told["offset"]
            assert "".join(text) == "".join(f"line {n}\n" for n in range(1_000_000))

        asyncio.run(walk())
