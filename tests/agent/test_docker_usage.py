"""What containers really use, measured with a real engine: by the files of their control groups, and by asking it."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import NamedTuple

import psutil
import pytest
from docker import APIClient

from backendai.agent.accelerators.inventory import Accelerators
from backendai.agent.backends.base import Backend
from backendai.agent.backends.docker.backend import DockerBackend
from backendai.agent.backends.docker.usage import ContainerUsage
from backendai.agent.loop.usage import UsageSampler
from backendai.base.wire.messages import KernelSpec
from backendai.base.wire.usage import KernelUsage
from tests.agent.contract_tools import NewSpec
from tests.patience import until

pytestmark = pytest.mark.docker
MIB = 2**20
BURN = "while :; do :; done"
# What a program keeps in its own memory, not what it reads from files, is what it uses.
HOLD = """awk 'BEGIN { text = "x"; while (length(text) < 16777216) text = text text; while (1) system("sleep 1") }'"""


@pytest.fixture
def burning(backend: DockerBackend, new_spec: NewSpec) -> Iterator[KernelSpec]:
    """A kernel that burns its one core, or what else the machine does leaves of it."""
    spec = new_spec(session_type="batch", command=BURN, slots={"cpu": "1", "mem": str(64 * MIB)})
    backend.start(spec)
    yield spec
    backend.remove(spec.kernel_id)


class Stretch(NamedTuple):
    """What was measured of a kernel over some seconds, and the cores that its processes really had meanwhile."""

    usage: KernelUsage
    truth: float


def stretch_of(engine: APIClient, backend: Backend, spec: KernelSpec, seconds: float) -> Stretch:
    program = psutil.Process(engine.inspect_container(f"krn-{spec.kernel_id}")["State"]["Pid"])
    sampler = UsageSampler(backend, Accelerators(), interval=10.0)
    sampler.saw(backend.kernels())
    before = spent_by(program)
    sampler.measure()
    time.sleep(seconds)
    sampler.measure()
    spent = spent_by(program) - before
    report = sampler.report()
    assert report is not None
    (usage,) = report.kernels
    return Stretch(usage, spent / usage.seconds)


def spent_by(program: psutil.Process) -> float:
    return sum(sum(one.cpu_times()[:2]) for one in [program, *program.children(recursive=True)])


def measured(backend: Backend, spec: KernelSpec) -> KernelUsage:
    """Measure twice, a second apart, and return what the kernel used between."""
    sampler = UsageSampler(backend, Accelerators(), interval=10.0)
    sampler.saw(backend.kernels())
    sampler.measure()
    time.sleep(1.0)
    sampler.measure()
    report = sampler.report()
    assert report is not None
    return next(usage for usage in report.kernels if usage.kernel_id == spec.kernel_id)


def test_a_container_that_burns_a_core_is_seen_to_do_so(
    engine: APIClient, backend: DockerBackend, burning: KernelSpec
) -> None:
    """On a machine with a core to spare both are 1; on a busy one as much as it got."""
    usage, truth = stretch_of(engine, backend, burning, 4.0)
    assert usage.cpu == pytest.approx(truth, abs=0.1)
    assert usage.cpu > 0.05


def test_a_container_that_sleeps_uses_next_to_nothing(backend: DockerBackend, new_spec: NewSpec) -> None:
    spec = new_spec(session_type="batch", command="exec sleep 1000")
    backend.start(spec)
    until(lambda: (measured(backend, spec).cpu or 0.0) < 0.05)
    usage = measured(backend, spec)
    assert usage.mem_bytes is not None and 0 < usage.mem_bytes < 16 * MIB
    assert (usage.net_rx is None, usage.net_tx is None) == (False, False)


def test_memory_that_a_program_holds_is_seen(backend: DockerBackend, new_spec: NewSpec) -> None:
    spec = new_spec(session_type="batch", command=HOLD)
    backend.start(spec)
    until(lambda: (measured(backend, spec).mem_bytes or 0) > 16 * MIB)


@pytest.mark.parametrize("is_seen", [True, False])
def test_a_program_that_the_memory_limit_ended_is_counted_while_the_kernel_goes_on(
    backend: DockerBackend, new_spec: NewSpec, monkeypatch: pytest.MonkeyPatch, is_seen: bool
) -> None:
    if not is_seen:
        monkeypatch.setattr("backendai.agent.backends.docker.usage.folders_of", lambda pid: {})
    spec = new_spec(
        session_type="batch", command="tail /dev/zero; exec sleep 1000", slots={"cpu": "1", "mem": str(32 * MIB)}
    )
    backend.start(spec)
    until(lambda: measured(backend, spec).memory_kills == 1)
    assert measured(backend, spec).memory_kills == 1, "each look counts it once"


def test_the_engine_tells_where_its_files_cannot_be_seen(
    engine: APIClient, backend: DockerBackend, burning: KernelSpec, monkeypatch: pytest.MonkeyPatch
) -> None:
    def nobody_there(pid: int) -> dict[str, object]:
        raise FileNotFoundError

    monkeypatch.setattr("backendai.agent.backends.docker.usage.folders_of", nobody_there)
    usage, truth = stretch_of(engine, backend, burning, 4.0)
    assert usage.cpu == pytest.approx(truth, abs=0.1)
    assert usage.mem_bytes


def test_it_asks_the_engine_once_for_each_container(
    backend: DockerBackend, burning: KernelSpec, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = list[str]()
    inspect = APIClient.inspect_container

    def counted(client: APIClient, container: str) -> dict[str, object]:
        asked.append(container)
        return inspect(client, container)

    kernels = backend.kernels()
    monkeypatch.setattr(APIClient, "inspect_container", counted)
    usage = ContainerUsage(backend._engine)
    for _ in range(3):
        assert burning.kernel_id in usage.readings(kernels)
    assert len(asked) == len(kernels)


def test_a_container_that_has_gone_is_left_out(backend: DockerBackend, burning: KernelSpec) -> None:
    kernels = backend.kernels()
    assert burning.kernel_id in backend.readings(kernels)
    backend.remove(burning.kernel_id)
    assert burning.kernel_id not in backend.readings(kernels)
