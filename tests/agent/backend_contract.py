"""What every backend must do, as tests. Subclass ``BackendContract`` and give it these fixtures:

``backend``    the backend under test, set up; its finalizer removes every kernel of the deployment
``neighbour``  a backend of another deployment on the same engine; its finalizer cleans up too
``reopened``   a function that returns another instance of ``backend``, as after ``kill -9`` of the agent
``new_spec``   a function like ``make_spec`` whose specs belong to ``backend`` (deployment, agent, image)

The class attributes fit the questions to what the kernels of a backend can run. Questions about an ability are asked of
the backends that have it.
"""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from uuid import UUID, uuid4

import pytest

from backendai.agent.backends.abilities import HomeStoring, Imaging, Measuring
from backendai.agent.backends.base import Backend, ImageNotFound, KernelGone, StaleGeneration
from tests.agent.contract_tools import NewSpec, ended_of, needs
from tests.agent.stream_contract import StreamContract
from tests.patience import until


class BackendContract(StreamContract):
    """Starting, adopting, ending, removing, listing and watching kernels (streams: see ``StreamContract``)."""

    missing_image = "local/backendai-test:no-such-image"
    exits_with_3 = "exit 3"
    loses_a_process_to_its_limit = "tail -c 300000000 /dev/zero; sleep 1"
    ticks = "trap 'echo bye; exit 0' TERM; while :; do echo tick; sleep 0.1; done"
    stands_still = True
    ignores_the_polite_signal = "trap '' TERM; echo ready; while :; do sleep 0.2; done"

    def test_it_starts_a_kernel_and_adopts_it_when_asked_again(self, backend: Backend, new_spec: NewSpec) -> None:
        spec = new_spec()
        first, second = backend.start(spec), backend.start(spec)
        assert (first.adopted, second.adopted) == (False, True)
        assert first.container_id == second.container_id != ""
        assert backend.ended(spec.kernel_id) is None

    def test_it_makes_one_kernel_of_sixteen_starts_at_once(self, backend: Backend, new_spec: NewSpec) -> None:
        spec = new_spec()
        with ThreadPoolExecutor(16) as threads:
            answers = list(threads.map(lambda _: backend.start(spec), range(16)))
        assert len({answer.container_id for answer in answers}) == 1
        assert [answer.adopted for answer in answers].count(False) == 1
        assert [kernel.kernel_id for kernel in backend.kernels()] == [spec.kernel_id]

    def test_it_replaces_a_kernel_of_an_older_generation(self, backend: Backend, new_spec: NewSpec) -> None:
        old = new_spec(generation=1)
        first = backend.start(old)
        second = backend.start(old.model_copy(update={"generation": 2}))
        assert not second.adopted
        assert second.container_id != first.container_id
        assert [(kernel.generation, kernel.running) for kernel in backend.kernels()] == [(2, True)]

    def test_it_refuses_an_order_that_is_out_of_date(self, backend: Backend, new_spec: NewSpec) -> None:
        new = new_spec(generation=2)
        started = backend.start(new)
        with pytest.raises(StaleGeneration):
            backend.start(new.model_copy(update={"generation": 1}))
        assert [(kernel.generation, kernel.running) for kernel in backend.kernels()] == [(2, True)]
        assert backend.start(new).container_id == started.container_id

    @needs(HomeStoring)
    def test_a_frozen_kernel_stands_still_until_it_is_thawed_by_another_agent_too(
        self, backend: HomeStoring, reopened: Callable[[], HomeStoring], new_spec: NewSpec
    ) -> None:
        spec = new_spec(session_type="batch", command=self.ticks)
        backend.start(spec)
        until(lambda: self.ticked(backend, spec.kernel_id))
        for _ in range(2):
            backend.freeze(spec.kernel_id)
        assert [(one.running, one.frozen) for one in backend.kernels()] == [(True, True)]
        assert backend.ended(spec.kernel_id) is None
        if self.stands_still:
            backend = reopened()
            assert [(one.running, one.frozen) for one in backend.kernels()] == [(True, True)]
            before = self.ticked(backend, spec.kernel_id)
            time.sleep(1)
            assert self.ticked(backend, spec.kernel_id) == before
        for _ in range(2):
            backend.thaw(spec.kernel_id)
        assert [(one.running, one.frozen) for one in backend.kernels()] == [(True, False)]
        now = self.ticked(backend, spec.kernel_id)
        until(lambda: self.ticked(backend, spec.kernel_id) > now)
        backend.thaw(uuid4())
        with pytest.raises(KernelGone):
            backend.freeze(uuid4())

    @needs(HomeStoring)
    def test_a_frozen_kernel_is_killed_at_once_stopped_politely_and_removed(
        self, backend: HomeStoring, new_spec: NewSpec
    ) -> None:
        specs = [new_spec(session_type="batch", command=self.ticks) for _ in range(3)]
        for spec in specs:
            backend.start(spec)
            until(lambda spec=spec: self.ticked(backend, spec.kernel_id))
            backend.freeze(spec.kernel_id)
        killed, stopped, removed = (spec.kernel_id for spec in specs)
        began_at = time.monotonic()
        backend.stop(killed, grace=0)
        assert time.monotonic() - began_at < 5
        ended = backend.ended(killed)
        assert ended is not None and ended.reason == "" and self.ticked(backend, killed)
        backend.stop(stopped, grace=20)
        assert time.monotonic() - began_at < 15, "it was thawed, and could end by itself"
        if self.stands_still:
            assert b"bye" not in backend.read_log(killed, limit=10**6)[0]
            assert backend.read_log(stopped, limit=10**6)[0].endswith(b"bye\n")
        assert [one.frozen for one in backend.kernels() if one.kernel_id != removed] == [False, False]
        backend.remove(removed)
        assert len(backend.kernels()) == 2

    def ticked(self, backend: Backend, kernel_id: UUID) -> int:
        """Return how many lines the kernel has printed."""
        return backend.read_log(kernel_id, limit=10**6)[0].count(b"\n")

    @needs(Imaging)
    def test_it_says_that_the_image_is_missing_and_leaves_nothing(self, backend: Backend, new_spec: NewSpec) -> None:
        with pytest.raises(ImageNotFound):
            backend.start(new_spec(image=self.missing_image))
        assert backend.kernels() == []

    @needs(Imaging)
    def test_it_knows_the_images_that_can_be_started(self, backend: Imaging, new_spec: NewSpec) -> None:
        image = new_spec().image
        assert backend.has_image(image)
        assert not backend.has_image(self.missing_image)
        assert image in [known.reference for known in backend.images()]

    def test_it_tells_the_exit_code_of_a_main_process_that_dies_at_once(
        self, backend: Backend, new_spec: NewSpec
    ) -> None:
        spec = new_spec(session_type="batch", command=self.exits_with_3)
        backend.start(spec)
        ended = ended_of(backend, spec.kernel_id)
        assert (ended.exit_code, ended.reason) == (3, "exited")
        assert "3" in ended.message

    @pytest.mark.parametrize(("code", "reason"), [(5, "out-of-memory"), (0, "exited")])
    def test_it_says_that_a_process_was_killed_at_the_memory_limit(
        self, code: int, reason: str, backend: Backend, new_spec: NewSpec
    ) -> None:
        spec = new_spec(session_type="batch", command=f"{self.loses_a_process_to_its_limit}; exit {code}")
        backend.start(spec)
        ended = ended_of(backend, spec.kernel_id)
        assert (ended.exit_code, ended.reason, ended.has_cause) == (code, reason, True), ended
        assert f"exit code {code}" in ended.message and "MiB), and a process was killed" in ended.message

    def test_it_does_not_run_an_ended_kernel_a_second_time(self, backend: Backend, new_spec: NewSpec) -> None:
        spec = new_spec(session_type="batch", command=self.exits_with_3)
        first = backend.start(spec)
        ended_of(backend, spec.kernel_id)
        second = backend.start(spec)
        assert (second.container_id, second.adopted) == (first.container_id, True)
        ended = backend.ended(spec.kernel_id)
        assert ended is not None and ended.exit_code == 3

    def test_it_lists_running_and_ended_kernels(self, backend: Backend, new_spec: NewSpec) -> None:
        running = new_spec(generation=4)
        failed = new_spec(session_type="batch", command=self.exits_with_3)
        for spec in (running, failed):
            backend.start(spec)
        ended_of(backend, failed.kernel_id)
        seen = {kernel.kernel_id: kernel for kernel in backend.kernels()}
        assert seen.keys() == {running.kernel_id, failed.kernel_id}
        assert (seen[running.kernel_id].running, seen[running.kernel_id].generation) == (True, 4)
        assert (seen[failed.kernel_id].running, seen[failed.kernel_id].exit_code) == (False, 3)

    def test_it_stops_a_kernel_and_blames_nobody(self, backend: Backend, new_spec: NewSpec) -> None:
        spec = new_spec()
        backend.start(spec)
        backend.stop(spec.kernel_id, grace=5)
        ended = backend.ended(spec.kernel_id)
        assert ended is not None and ended.reason == ""
        backend.stop(spec.kernel_id, grace=5)
        backend.stop(uuid4(), grace=5)

    def test_it_kills_what_ignores_the_polite_signal(self, backend: Backend, new_spec: NewSpec) -> None:
        spec = new_spec(session_type="batch", command=self.ignores_the_polite_signal)
        backend.start(spec)
        until(lambda: b"ready" in backend.read_log(spec.kernel_id, limit=100)[0])
        started_at = time.monotonic()
        backend.stop(spec.kernel_id, grace=1)
        assert time.monotonic() - started_at < 15, "stop goes far beyond its grace"
        ended = backend.ended(spec.kernel_id)
        assert ended is not None and ended.reason == ""

    def test_it_removes_a_kernel_running_or_not_and_twice(self, backend: Backend, new_spec: NewSpec) -> None:
        spec = new_spec()
        backend.start(spec)
        backend.remove(spec.kernel_id)
        backend.remove(spec.kernel_id)
        backend.remove(uuid4())
        assert backend.kernels() == []
        with pytest.raises(KernelGone):
            backend.ended(spec.kernel_id)

    def test_it_finds_its_kernels_again_after_the_agent_was_killed(
        self, backend: Backend, reopened: Callable[[], Backend], new_spec: NewSpec
    ) -> None:
        spec = new_spec()
        first = backend.start(spec)
        again = reopened()
        assert [(kernel.kernel_id, kernel.running) for kernel in again.kernels()] == [(spec.kernel_id, True)]
        adopted = again.start(spec)
        assert (adopted.container_id, adopted.adopted) == (first.container_id, True)
        again.stop(spec.kernel_id, grace=2)
        assert again.ended(spec.kernel_id) is not None

    def test_it_sees_and_touches_no_kernel_of_another_deployment(
        self, backend: Backend, neighbour: Backend, new_spec: NewSpec
    ) -> None:
        spec = new_spec()
        backend.start(spec)
        assert neighbour.kernels() == []
        neighbour.stop(spec.kernel_id, grace=1)
        neighbour.remove(spec.kernel_id)
        neighbour.sweep(set())
        with pytest.raises(KernelGone):
            neighbour.ended(spec.kernel_id)
        assert neighbour.read_log(spec.kernel_id, limit=100) == (b"", False)
        assert backend.ended(spec.kernel_id) is None

    def test_it_sweeps_without_harming_live_kernels(self, backend: Backend, new_spec: NewSpec) -> None:
        spec = new_spec()
        backend.start(spec)
        backend.sweep({spec.kernel_id})
        backend.sweep({spec.kernel_id})
        assert backend.ended(spec.kernel_id) is None
        assert backend.start(spec).adopted

    def test_it_tells_of_a_kernel_that_ends(self, backend: Backend, new_spec: NewSpec) -> None:
        told: list[UUID] = []
        watcher = threading.Thread(
            target=lambda: told.extend(event.kernel_id for event in itertools.islice(backend.watch(), 1)), daemon=True
        )
        watcher.start()
        ended: set[UUID] = set()

        def end_one_more_and_look() -> list[UUID]:  # the first may end before the watcher listens
            spec = new_spec(session_type="batch", command=self.exits_with_3)
            ended.add(spec.kernel_id)
            backend.start(spec)
            ended_of(backend, spec.kernel_id)
            watcher.join(1)
            return told

        until(end_one_more_and_look)
        assert set(told) <= ended

    @needs(Measuring)
    def test_it_reads_what_a_running_kernel_has_used(self, backend: Measuring, new_spec: NewSpec) -> None:
        spec = new_spec()
        backend.start(spec)
        reading = until(lambda: backend.readings(backend.kernels()).get(spec.kernel_id))
        assert reading.cpu_seconds is not None and reading.cpu_seconds >= 0
        assert reading.mem_bytes is not None and reading.run
        backend.remove(spec.kernel_id)
        assert backend.readings(backend.kernels()) == {}
