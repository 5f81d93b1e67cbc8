"""The simulated backend: the shared contract, and its own sense of time."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest

from backendai.agent.backends.base import Backend, BackendError, KernelGone, StartFailed
from backendai.agent.backends.simulated.backend import IMAGE, SimulatedBackend, SimulatedDurations
from backendai.base.core.slots import Slots
from tests.agent.backend_contract import BackendContract
from tests.agent.contract_tools import NewSpec, ended_of
from tests.agent.fakes import EngineDown, FailsAtOnce, FailsLate, InstantBackend, NeverStarts, SlowBackend
from tests.agent.specs import make_spec
from tests.patience import patient

ROOM = Slots.parse({"cpu": 64, "mem": "256g"})
QUICK = SimulatedDurations(start_seconds=1, line_seconds=1, time_scale=0.01)


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def timed(clock: Clock) -> SimulatedBackend:
    pace = SimulatedDurations(start_seconds=0, batch_seconds=30, line_seconds=10)
    return SimulatedBackend(deployment="test", capacity=ROOM, pace=pace, clock=clock)


class TestSimulatedBackend(BackendContract):
    """Its programs only sleep and exit, its shell only repeats."""

    prints_5_lines = "sleep 5"
    prints_then_waits = "sleep 20"
    prints_odd_lines = ""
    loses_a_process_to_its_limit = "sleep 1; out-of-memory"
    ignores_the_polite_signal = "sleep 100000"
    ticks, stands_still = "sleep 100000", False
    question, answer = b"echo mark-42\n", b"mark-42"
    remember = b"echo set-mar\n"

    @pytest.fixture
    def backend(self, tmp_path: Path) -> Iterator[SimulatedBackend]:
        backend = self._open(tmp_path, "test")
        yield backend
        backend.close()

    @pytest.fixture
    def neighbour(self, tmp_path: Path) -> SimulatedBackend:
        return self._open(tmp_path, "other")

    @pytest.fixture
    def reopened(self, tmp_path: Path) -> Callable[[], SimulatedBackend]:
        return partial(self._open, tmp_path, "test")

    @pytest.fixture
    def new_spec(self) -> NewSpec:
        return partial(make_spec, image=IMAGE)

    @staticmethod
    def _open(data: Path, deployment: str) -> SimulatedBackend:
        return SimulatedBackend(deployment=deployment, capacity=ROOM, pace=QUICK, journal=data / "kernels.jsonl")

    @pytest.mark.asyncio
    async def test_it_follows_a_log_until_the_kernel_ends(self, backend: Backend, new_spec: NewSpec) -> None:
        spec = new_spec(session_type="batch", command=self.prints_then_waits)
        await asyncio.to_thread(backend.start, spec)
        async with asyncio.timeout(patient(30)):
            pieces = [piece async for piece in backend.follow_log(spec.kernel_id, tail=None, follow=True)]
        assert len(pieces) > 1, "it was not followed but read at its end"
        assert b"".join(pieces).splitlines()[1:] == [b"line-%d" % number for number in range(1, 21)]


def test_it_ends_a_batch_kernel_when_its_time_is_over(timed: SimulatedBackend, clock: Clock) -> None:
    spec = make_spec(session_type="batch", command="python train.py")
    timed.start(spec)
    clock.now += 29
    assert timed.ended(spec.kernel_id) is None
    clock.now += 1
    ended = timed.ended(spec.kernel_id)
    assert ended is not None and (ended.exit_code, ended.reason) == (0, "exited")


def test_it_takes_the_time_and_exit_code_of_a_batch_kernel_from_its_command(
    timed: SimulatedBackend, clock: Clock
) -> None:
    spec = make_spec(session_type="batch", command="sleep 100; exit 7")
    timed.start(spec)
    clock.now += 99
    assert timed.ended(spec.kernel_id) is None
    clock.now += 1
    assert ended_of(timed, spec.kernel_id).exit_code == 7


def test_it_leaves_an_interactive_kernel_alone(timed: SimulatedBackend, clock: Clock) -> None:
    spec = make_spec()
    timed.start(spec)
    clock.now += 10**6
    assert timed.ended(spec.kernel_id) is None


def test_it_logs_a_line_whenever_one_is_due(timed: SimulatedBackend, clock: Clock) -> None:
    spec = make_spec(image="any/name:1")
    timed.start(spec)
    clock.now += 25
    assert timed.read_log(spec.kernel_id, limit=1000) == (
        b"Session demo on main1: any/name:1 is ready\nline-1\nline-2\n",
        False,
    )


def test_it_spends_no_time_at_scale_zero(clock: Clock) -> None:
    pace = SimulatedDurations(start_seconds=3600, batch_seconds=3600, time_scale=0)
    backend = SimulatedBackend(deployment="test", capacity=ROOM, pace=pace, clock=clock)
    spec = make_spec(session_type="batch")
    backend.start(spec)
    assert clock.now == 1000.0
    assert ended_of(backend, spec.kernel_id).exit_code == 0


def test_it_holds_thousands_of_kernels(timed: SimulatedBackend) -> None:
    specs = [make_spec() for _ in range(3000)]
    for spec in specs:
        timed.start(spec)
    assert {kernel.kernel_id for kernel in timed.kernels() if kernel.running} == {spec.kernel_id for spec in specs}


def test_it_remembers_stops_and_removals_after_the_agent_was_killed(tmp_path: Path) -> None:
    journal = tmp_path / "kernels.jsonl"
    backend = InstantBackend(journal=journal)
    stopped, removed, kept = make_spec(), make_spec(), make_spec()
    for spec in (stopped, removed, kept):
        backend.start(spec)
    backend.stop(stopped.kernel_id, grace=1)
    backend.remove(removed.kernel_id)
    journal.write_text(journal.read_text() + '{"kernel_id": "cut o')
    again = InstantBackend(journal=journal)
    assert {one.kernel_id: one.running for one in again.kernels()} == {stopped.kernel_id: False, kept.kernel_id: True}


def test_it_closes_the_stream_of_events() -> None:
    backend = InstantBackend()
    watching = threading.Thread(target=lambda: list(backend.watch()))
    watching.start()
    backend.close()
    watching.join(30)
    assert not watching.is_alive()


def test_it_shows_no_more_lines_than_there_are(timed: SimulatedBackend, clock: Clock) -> None:
    spec = make_spec()
    timed.start(spec)
    clock.now += 10

    async def last_lines() -> list[bytes]:
        return [piece async for piece in timed.follow_log(spec.kernel_id, tail=100, follow=False)]

    assert asyncio.run(last_lines()) == [timed.read_log(spec.kernel_id, limit=1000)[0]]


def test_it_starts_slowly_when_the_fake_is_slow() -> None:
    backend, spec = SlowBackend(), make_spec()
    starting = threading.Thread(target=backend.start, args=[spec])
    starting.start()
    assert backend.started.wait(30)
    assert backend.kernels() == []
    backend.go_on.set()
    starting.join(30)
    assert [one.kernel_id for one in backend.kernels()] == [spec.kernel_id]


@pytest.mark.parametrize("fake", [NeverStarts, FailsAtOnce])
def test_it_leaves_nothing_when_the_fake_fails_to_start(fake: type[InstantBackend]) -> None:
    backend, spec = fake(), make_spec()
    if isinstance(backend, NeverStarts):
        backend.give_up.set()
    with pytest.raises(StartFailed):
        backend.start(spec)
    with pytest.raises(KernelGone):
        backend.ended(spec.kernel_id)


def test_it_ends_late_when_the_fake_fails_late() -> None:
    backend, spec = FailsLate(), make_spec()
    backend.start(spec)
    assert backend.ended(spec.kernel_id) is None
    backend.fail(spec.kernel_id)
    ended = backend.ended(spec.kernel_id)
    assert ended is not None and (ended.exit_code, ended.reason) == (1, "exited")
    assert [(one.running, one.exit_code) for one in backend.kernels()] == [(False, 1)]


def test_it_answers_nothing_while_the_engine_of_the_fake_is_down() -> None:
    backend = EngineDown()
    with pytest.raises(BackendError):
        backend.kernels()
    with pytest.raises(BackendError):
        backend.start(make_spec())
    backend.down = False
    assert backend.kernels() == []
