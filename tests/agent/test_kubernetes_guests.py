"""Running code in pods of a real cluster: the contract of guests, over one command in each pod."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from uuid import UUID, uuid4

import pytest
import yaml

from backendai.agent.backends.base import BackendError
from backendai.agent.backends.kubernetes.api.access import find_access
from backendai.agent.backends.kubernetes.backend import KubernetesBackend
from backendai.agent.settings.kubernetes import PoolSettings
from tests.agent.guest_contract import ECHO, Asker, ProgramContract, text_of
from tests.agent.images import PYTHON_IMAGE
from tests.agent.kubernetes_bed import bed, ensure_bed, namespace
from tests.agent.specs import make_spec

pytestmark = [pytest.mark.kubernetes, pytest.mark.timeout(300)]


@pytest.fixture(scope="module")
def opened(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[], KubernetesBackend]]:
    """Makes backends of one agent, in a namespace with its rights."""
    ensure_bed()
    made: list[KubernetesBackend] = []
    folder, deployment = tmp_path_factory.mktemp("agent"), f"test-{uuid4().hex[:8]}"
    with namespace() as (_, said):
        (folder / "config").write_text(yaml.safe_dump(said))

        def make() -> KubernetesBackend:
            access = find_access(folder / "config")
            pool = PoolSettings(reach="direct")
            made.append(KubernetesBackend(folder, access, pool, deployment=deployment, agent="n1"))
            return made[-1]

        yield make
        for kernel in made[0].kernels():
            made[0].remove(kernel.kernel_id)
        for one in made:
            one.close()


@pytest.fixture(scope="module")
def backend(opened: Callable[[], KubernetesBackend]) -> KubernetesBackend:
    return opened()


@pytest.fixture(scope="module")
def shared(backend: KubernetesBackend) -> UUID:
    """One pod for all: a start takes seconds."""
    slots = {"cpu": "0.5", "mem": str(512 * 2**20)}
    spec = make_spec(deployment=backend._ours.deployment, agent="n1", image=PYTHON_IMAGE, slots=slots)
    backend.start(spec)
    return spec.kernel_id


@pytest.mark.ci
def test_code_runs_and_its_servers_are_reached(backend: KubernetesBackend, shared: UUID) -> None:
    asker = Asker(backend, shared)

    async def walk() -> None:
        assert text_of(await asker.run("print(6*7)")) == "42\n"
        port = int(text_of(await asker.run(ECHO.format("127.0.0.1"))))
        assert await asker.echo(b"x" * 2**20, port=port) == b"hello " + b"x" * 2**20

    asyncio.run(walk())


@pytest.mark.long
class TestPods(ProgramContract):
    @pytest.fixture
    def kernel(self, backend: KubernetesBackend, shared: UUID) -> Iterator[UUID]:
        yield shared
        asker = Asker(backend, shared)
        asker.play(lambda: asker.ask("restart"))

    def test_the_variables_outlive_the_agent(
        self, asker: Asker, backend: KubernetesBackend, opened: Callable[[], KubernetesBackend]
    ) -> None:
        async def walk() -> None:
            await asker.run("x = 6")
            asker.links.close()
            backend._guests.close()  # two at once would take the way from each other
            later = await asyncio.to_thread(opened)
            assert text_of(await Asker(later, asker.kernel).run("print(x*7)")) == "42\n"
            later.close()

        asker.play(walk)

    def test_a_way_that_breaks_off_is_opened_again_and_variables_stay(self, asker: Asker) -> None:
        async def walk() -> None:
            await asker.run("x = 6")
            end = "kill -9 $(cat /tmp/.backendai-guest/carrier.pid)"
            await asyncio.to_thread(bed, "docker", "exec", _container(asker.kernel), "sh", "-c", end)
            async with asyncio.timeout(60):
                while (said := await self.once(asker)) is None:
                    await asyncio.sleep(0.2)
            assert said == "42\n"

        asker.play(walk)

    async def once(self, asker: Asker) -> str | None:
        """Return what it says; None where the connection broke off with the way."""
        try:
            return text_of(await asker.run("print(x*7)"))
        except (ValueError, BackendError):
            return None


def _container(kernel_id: UUID) -> str:
    return bed("docker", "ps", "-q", "--filter", f"name=k8s_main_krn-{kernel_id}").split()[0]
