"""Running code in real containers: the contract of guests."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from uuid import UUID

import pytest
from docker import APIClient

from backendai.agent.backends.docker.backend import DockerBackend
from backendai.agent.backends.guest_host import INSIDE
from tests.agent.contract_tools import NewSpec
from tests.agent.docker_tools import shell
from tests.agent.guest_contract import Asker, ProgramContract, text_of
from tests.agent.images import ensure_python_image

pytestmark = [pytest.mark.docker]


class TestDocker(ProgramContract):
    @pytest.fixture
    def kernel(self, backend: DockerBackend, engine: APIClient, new_spec: NewSpec) -> Iterator[UUID]:
        spec = new_spec(image=ensure_python_image(engine), slots={"cpu": "1", "mem": str(512 * 2**20)})
        backend.start(spec)
        yield spec.kernel_id
        backend.remove(spec.kernel_id)

    def test_nothing_inside_can_take_the_place_of_the_agent(self, asker: Asker, engine: APIClient) -> None:
        async def walk() -> None:
            assert text_of(await asker.run("print(1)")) == "1\n"
            code, _ = await asyncio.to_thread(
                shell, engine, asker.kernel, f"rm -f {INSIDE}/agent.sock || touch {INSIDE}/x"
            )
            assert code != 0
            assert text_of(await asker.run("import os; print(os.getuid())")) == "1000\n"

        asker.play(walk)

    def test_the_variables_outlive_the_agent(self, asker: Asker, reopened: Callable[[], DockerBackend]) -> None:
        async def walk() -> None:
            await asker.run("x = 6")
            asker.links.close()
            again = Asker(reopened(), asker.kernel)
            assert text_of(await again.run("print(x*7)")) == "42\n"
            again.links.close()

        asker.play(walk)

    def test_memory_that_runs_out_is_said(self, asker: Asker) -> None:
        async def walk() -> None:
            told = await asker.run("x = bytearray(10**9); print(len(x))")
            assert (told["state"], told["reason"]) == ("LOST", "out-of-memory"), told
            assert "512 MiB" in text_of(told, "log")
            assert text_of(await asker.run("print('again')")) == "again\n"

        asker.play(walk)
