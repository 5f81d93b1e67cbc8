"""The QEMU backend with emulated machines: the contract.

A start takes seconds. Questions that change nothing share a machine that stands for all of them.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from uuid import UUID

import pytest
from docker import APIClient

from backendai.agent.backends.base import Backend
from backendai.agent.backends.qemu import QemuBackend
from backendai.agent.backends.qemu_ask import output_of
from backendai.agent.backends.qemu_channel import program_words
from backendai.agent.qemu_settings import MachineSettings
from tests.agent.backend_contract import BackendContract
from tests.agent.contract_tools import NewSpec
from tests.agent.images import TMUX_IMAGE, ensure_service_image, ensure_tiny_image, ensure_tmux_image
from tests.agent.qemu_bed import machine_settings
from tests.agent.specs import make_spec
from tests.agent.stream_contract import StreamContract

pytestmark = [pytest.mark.qemu, pytest.mark.docker, pytest.mark.timeout(300)]
Open = Callable[..., QemuBackend]
SMALL = {"cpu": "1", "mem": str(224 * 2**20)}  # less than half of it is the guest's
STANDING = {  # questions that leave the machine as it was
    "test_it_answers_what_is_typed_in_a_terminal",
    "test_it_leaves_no_client_behind_a_closed_terminal",
    "test_it_can_be_attached_again_after_a_hang_up",
    "test_it_reads_nothing_more_when_the_shell_has_ended",
    "test_it_shows_the_windows_of_tmux_from_the_second_one_on",
    "test_it_sweeps_away_the_clients_left_by_a_killed_agent",
    "test_it_sweeps_without_harming_live_kernels",
}


@pytest.fixture(scope="module")
def settings(tmp_path_factory: pytest.TempPathFactory) -> MachineSettings:
    return machine_settings(tmp_path_factory.mktemp("machines"))


@pytest.fixture(scope="module")
def images() -> None:
    """The test images in the Docker Engine, from where machines get them."""
    client = APIClient()
    for ensure in (ensure_tiny_image, ensure_tmux_image, ensure_service_image):
        ensure(client)
    client.close()


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    folder = tmp_path_factory.mktemp("agents")
    yield folder
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(scope="module")
def made(data: Path, settings: MachineSettings, images: None) -> Iterator[Open]:
    """Makes backends whose kernels go with the module; none leaves a process."""
    backends: list[QemuBackend] = []

    def make(name: str, deployment: str = "test") -> QemuBackend:
        backends.append(QemuBackend(data / name, settings, deployment=deployment, agent="n1"))
        return backends[-1]

    yield make
    clear(backends)


def clear(backends: list[QemuBackend]) -> None:
    for backend in backends:
        for kernel in backend.kernels():
            backend.remove(kernel.kernel_id)
        backend.sweep(set())
        backend.close()
        left = list(backend._kernel_places.folders())
        assert left == []


@pytest.fixture(scope="module")
def standing(made: Open) -> Callable[[str], tuple[QemuBackend, NewSpec]]:
    """A backend with a machine that runs, and what orders just that machine again."""
    known: dict[str, tuple[QemuBackend, NewSpec]] = {}

    def stand(image: str) -> tuple[QemuBackend, NewSpec]:
        if image not in known:
            backend, spec = made(f"standing{len(known)}"), make_spec(slots=SMALL, image=image)
            backend.start(spec)
            known[image] = backend, lambda **over: spec
        return known[image]

    return stand


@pytest.fixture
def opened(data: Path, settings: MachineSettings, images: None, request: pytest.FixtureRequest) -> Iterator[Open]:
    backends: list[QemuBackend] = []

    def make(deployment: str = "test") -> QemuBackend:
        backends.append(QemuBackend(data / "own", settings, deployment=deployment, agent="n1"))
        return backends[-1]

    yield make
    clear(backends)


class Questions:
    """Which machine a question of the contract is asked of."""

    image = make_spec().image

    @pytest.fixture
    def backend(self, request: pytest.FixtureRequest, opened: Open, standing: Callable[..., object]) -> Backend:
        if request.function.__name__ in STANDING:
            return standing(self.image)[0]  # type: ignore[index,return-value]
        return opened()

    @pytest.fixture
    def new_spec(self, request: pytest.FixtureRequest, standing: Callable[..., object]) -> NewSpec:
        if request.function.__name__ in STANDING:
            return standing(self.image)[1]  # type: ignore[index,return-value]
        return partial(make_spec, slots=SMALL, image=self.image)

    @pytest.fixture
    def neighbour(self, opened: Open) -> Backend:
        return opened("other")

    @pytest.fixture
    def reopened(self, data: Path, settings: MachineSettings, backend: QemuBackend) -> Callable[[], Backend]:
        return lambda: QemuBackend(backend._data, settings, deployment="test", agent="n1")

    def clients_of(self, backend: Backend, kernel_id: UUID) -> int:
        """Return how many shells have a terminal in the guest."""
        assert isinstance(backend, QemuBackend)
        words = program_words(["sh", "-c", "ls -l /proc/[0-9]*/fd/0 2>/dev/null | grep -c /dev/pts/"], {})
        return int(output_of(backend._running(kernel_id).path, words)[0])


class TestQemuBackend(Questions, BackendContract):
    """The contract, with terminals that are plain shells."""

    def test_it_sweeps_away_the_clients_left_by_a_killed_agent(  # type: ignore[override]
        self, backend: Backend, reopened: Callable[[], Backend], new_spec: NewSpec
    ) -> None:
        pytest.skip("a terminal ends with the connection of its agent")


class TestQemuTerminalsWithTmux(Questions, StreamContract):
    """The part of the contract about streams, with an image that has tmux."""

    keeps_terminals = True
    image = TMUX_IMAGE

    def test_it_sweeps_away_the_clients_left_by_a_killed_agent(  # type: ignore[override]
        self, backend: Backend, reopened: Callable[[], Backend], new_spec: NewSpec
    ) -> None:
        pytest.skip("a terminal ends with the connection of its agent")
