"""Measuring what kernels use: counters read from files, differences told once, nothing that holds up a sync."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import pytest

from backendai.agent.accelerators.base import MeasuredUse, ProcessUse
from backendai.agent.accelerators.counters import DeviceReadings
from backendai.agent.accelerators.inventory import Accelerators
from backendai.agent.backends.abilities import Measuring
from backendai.agent.backends.base import BackendError, KernelReading
from backendai.agent.backends.kubernetes import usage as kubernetes_usage
from backendai.agent.backends.native.folder import KernelFolder
from backendai.agent.backends.native.runner import start_time
from backendai.agent.backends.native.usage import readings_of
from backendai.agent.backends.shared.cgroup_counters import folders_of, network_bytes, read
from backendai.agent.backends.simulated.backend import SimulatedBackend, SimulatedDurations
from backendai.agent.loop.usage import UsageSampler
from backendai.base.core.slots import Slots
from backendai.base.wire.live import DeviceUse
from backendai.base.wire.messages import KernelSighting
from backendai.base.wire.usage import MOST_KERNELS
from tests.agent.memory_backend import MemoryBackend
from tests.agent.node import Node
from tests.agent.portal import make_spec as make_known_spec
from tests.agent.specs import make_spec


class Counting(MemoryBackend, Measuring):
    """Says what a test has it say."""

    def __init__(self) -> None:
        super().__init__([])
        self.read: dict[UUID, KernelReading] = {}

    def readings(self, kernels: Sequence[KernelSighting]) -> dict[UUID, KernelReading]:
        if self.down:
            raise BackendError("The engine is down.")
        return {kernel.kernel_id: self.read[kernel.kernel_id] for kernel in kernels if kernel.kernel_id in self.read}


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


class Bench:
    """A sampler with a clock of its own and one kernel."""

    def __init__(self) -> None:
        self.backend, self.clock = Counting(), Clock()
        self.kernel_id = uuid4()
        self.sampler = UsageSampler(
            self.backend, Accelerators(), interval=10.0, portal_now=lambda: 5e8 + self.clock.now, clock=self.clock
        )
        self.sampler.saw([sighting(self.kernel_id)])

    def round(self, **values: Any) -> None:
        """Let ten seconds pass and measure."""
        self.clock.now += 10
        self.backend.read[self.kernel_id] = KernelReading(**({"run": "first"} | values))
        self.sampler.measure()


def sighting(kernel_id: UUID, *, running: bool = True) -> KernelSighting:
    return KernelSighting(kernel_id=kernel_id, generation=3, running=running, container_id=f"c{kernel_id.hex}")


def test_it_tells_by_how_much_counters_grew() -> None:
    bench = Bench()
    bench.round(cpu_seconds=5.0, mem_bytes=7, net_rx=100, io_write=50)
    assert bench.sampler.report() is None
    bench.round(cpu_seconds=20.0, mem_bytes=9, net_rx=160, io_write=50)
    told = bench.sampler.report()
    assert told is not None and told.at == 5e8 + bench.clock.now
    (usage,) = told.kernels
    assert (usage.kernel_id, usage.generation, usage.seconds) == (bench.kernel_id, 3, 10.0)
    assert (usage.cpu, usage.mem_bytes, usage.net_rx, usage.net_tx, usage.io_write) == (1.5, 9, 60, None, 0)


def test_programs_that_the_memory_limit_ended_are_told_as_their_number_since_the_start() -> None:
    bench = Bench()
    bench.round(memory_kills=2)
    bench.round(memory_kills=2)
    told = bench.sampler.report()
    assert told is not None and told.kernels[0].memory_kills == 2, "also those before the first look"


def test_pods_and_native_kernels_count_the_programs_that_the_memory_limit_ended(tmp_path: Path) -> None:
    pod = kubernetes_usage.reading_of("run", "usage_usec 1000000\nmemory 500\nkills oom_kill 4\n")
    assert pod is not None and (pod.cpu_seconds, pod.memory_kills) == (1.0, 4)
    old = kubernetes_usage.reading_of("run", "usage_usec 1000000\nkills \n")
    assert old is not None and old.memory_kills is None
    kernel = KernelFolder(write(tmp_path / str(uuid4()), {}))
    kernel.write("runner", {"pid": os.getpid(), "started": start_time(os.getpid())})
    assert readings_of([kernel])[kernel.kernel_id].memory_kills is None, "it has no group"
    group = write(tmp_path / "group", {"memory.events": "oom 1\noom_kill 1\n"})
    kernel.write("launch", {"cgroups": [str(tmp_path / "gone"), str(group)]})
    assert readings_of([kernel])[kernel.kernel_id].memory_kills == 1


def test_another_container_does_not_go_on_from_the_counters_of_the_one_before() -> None:
    bench = Bench()
    bench.round(cpu_seconds=5.0)
    bench.round(run="second", cpu_seconds=90.0)
    assert bench.sampler.report() is None


def test_a_counter_that_shrinks_is_no_negative_use() -> None:
    bench = Bench()
    bench.round(cpu_seconds=5.0)
    bench.round(cpu_seconds=4.0)
    told = bench.sampler.report()
    assert told is not None and told.kernels[0].cpu == 0.0


def test_a_report_stays_until_it_was_told_and_the_next_one_covers_the_time_since() -> None:
    bench = Bench()
    bench.round(cpu_seconds=0.0)
    bench.round(cpu_seconds=1.0)
    first = bench.sampler.report()
    bench.round(cpu_seconds=2.0)
    assert bench.sampler.report() is first
    bench.sampler.told(first)
    assert bench.sampler.report() is None
    bench.round(cpu_seconds=9.0)
    second = bench.sampler.report()
    assert second is not None
    assert (second.kernels[0].seconds, second.kernels[0].cpu) == (20.0, 0.4)


def test_a_portal_that_is_away_for_long_finds_one_report_and_not_hundreds() -> None:
    bench = Bench()
    for spent in range(40):
        bench.round(cpu_seconds=float(spent))
    told = bench.sampler.report()
    assert told is not None
    assert told.at == 5e8 + bench.clock.now - 80
    assert told.kernels[0].seconds == 300.0
    bench.sampler.told(told)
    assert bench.sampler.report() is None


def test_more_kernels_than_a_message_takes_are_told_one_after_the_other() -> None:
    bench = Bench()
    kernels = [uuid4() for _ in range(MOST_KERNELS + 1)]
    bench.sampler.saw(sighting(kernel_id) for kernel_id in kernels)
    for spent in (0.0, 1.0):
        bench.backend.read = {kernel_id: KernelReading("run", cpu_seconds=spent) for kernel_id in kernels}
        bench.clock.now += 10
        bench.sampler.measure()
    told = []
    while report := bench.sampler.report():
        told += [usage.kernel_id for usage in report.kernels]
        bench.sampler.told(report)
    assert told == kernels


def test_what_has_ended_is_not_measured() -> None:
    bench = Bench()
    bench.round(cpu_seconds=0.0)
    bench.sampler.saw([sighting(bench.kernel_id, running=False)])
    bench.round(cpu_seconds=1.0)
    assert bench.sampler.report() is None


def test_the_sync_carries_it_to_the_portal_once() -> None:
    node = Node(backend=Counting())
    sampler: UsageSampler = node.loop._machine._sampler
    clock = sampler._clock = Clock()
    spec = node.portal.want(make_known_spec())
    node.sync()
    node.sync()
    for spent in (0.0, 1.0):
        node.backend.read = {spec.kernel_id: KernelReading("run", cpu_seconds=spent)}  # type: ignore[attr-defined]
        clock.now += 10
        sampler.measure()
    for _ in range(2):
        node.sync()
    told = [up.usage for up in node.portal.syncs if up.usage]
    assert [[usage.kernel_id for usage in report.kernels] for report in told] == [[spec.kernel_id]]


# -- accelerators ------------------------------------------------------------------------------------------------------
def test_devices_are_told_as_the_mean_of_all_looks() -> None:
    one, other = uuid4(), uuid4()
    tally = DeviceReadings()
    tally.add({"GPU": MeasuredUse(80.0, 500, {7: ProcessUse(60.0, 300), 8: ProcessUse(20.0, 200)})}, {7: one, 8: other})
    tally.add({"GPU": MeasuredUse(40.0, 300, {7: ProcessUse(40.0, 300)})}, {7: one})
    told = tally.drain()["GPU"]
    assert (told.util_pct, told.mem_used, told.is_complete) == (60.0, 300, True)
    assert told.kernels == {one: DeviceUse(util_pct=50.0, mem_used=300), other: DeviceUse(util_pct=10.0, mem_used=200)}
    assert tally.drain() == {}


@pytest.mark.parametrize(
    ("use", "complete"),
    [
        (MeasuredUse(50.0, 1, {9: ProcessUse(50.0, 1)}), False),  # nobody knows whose process it is
        (MeasuredUse(50.0, 1), False),  # busy, but no process is seen
        (MeasuredUse(None, 1), False),
        (MeasuredUse(0.0, 1), True),
    ],
)
def test_it_says_whether_every_process_is_known(use: MeasuredUse, complete: bool) -> None:
    tally = DeviceReadings()
    tally.add({"GPU": use}, {})
    assert tally.drain()["GPU"].is_complete is complete


# -- control groups ----------------------------------------------------------------------------------------------------
def write(folder: Path, files: dict[str, str]) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (folder / name).write_text(text)
    return folder


def test_it_reads_a_group_of_version_2(tmp_path: Path) -> None:
    write(tmp_path / "proc/7", {"cgroup": "0::/system.slice/docker-abc.scope\n"})
    group = {
        "cpu.stat": "usage_usec 2500000\nuser_usec 2000000\n",
        "memory.current": "1000\n",
        "memory.stat": "anon 500\ninactive_file 300\n",
        "memory.events": "low 0\nhigh 0\nmax 9\noom 4\noom_kill 3\n",
        "io.stat": "8:0 rbytes=10 wbytes=20 rios=1 wios=2 dbytes=0 dios=0\n8:16 rbytes=1 wbytes=2 rios=1 wios=1\n",
    }
    write(tmp_path / "cg/system.slice/docker-abc.scope", group)
    folders = folders_of(7, proc=tmp_path / "proc", mount=tmp_path / "cg")
    assert read("run", folders) == KernelReading(
        "run", cpu_seconds=2.5, mem_bytes=700, io_read=11, io_write=22, memory_kills=3
    )


def test_it_reads_groups_of_version_1(tmp_path: Path) -> None:
    lines = "9:cpu,cpuacct:/docker/abc\n8:memory:/docker/abc\n7:blkio:/docker/abc\n1:name=systemd:/docker/abc\n"
    write(tmp_path / "proc/7", {"cgroup": lines})
    write(tmp_path / "cg/cpuacct/docker/abc", {"cpuacct.usage": "2500000000\n"})
    memory = {"memory.usage_in_bytes": "1000\n", "memory.stat": "cache 1\ntotal_inactive_file 300\n"}
    memory["memory.oom_control"] = "oom_kill_disable 0\nunder_oom 0\noom_kill 2\n"
    write(tmp_path / "cg/memory/docker/abc", memory)
    blocks = "8:0 Read 10\n8:0 Write 20\n8:0 Total 30\n8:16 Read 1\n8:16 Write 2\nTotal 33\n"
    write(tmp_path / "cg/blkio/docker/abc", {"blkio.throttle.io_service_bytes_recursive": blocks})
    folders = folders_of(7, proc=tmp_path / "proc", mount=tmp_path / "cg")
    assert read("run", folders) == KernelReading("run", cpu_seconds=2.5, mem_bytes=700, io_read=11, memory_kills=2), (
        "they count no bytes of the page cache"
    )


def test_what_a_group_does_not_have_is_not_measured(tmp_path: Path) -> None:
    write(tmp_path / "group", {"cpu.stat": "usage_usec 1000000\n"})
    assert read("run", {"": tmp_path / "group"}) == KernelReading("run", cpu_seconds=1.0)


def test_a_group_that_has_gone_says_nothing(tmp_path: Path) -> None:
    assert read("run", {"": tmp_path / "gone"}) is None


def test_it_adds_up_networks_but_for_the_loopback(tmp_path: Path) -> None:
    rows = ["    lo: 999 1 0 0 0 0 0 0 999 1", "  eth0: 10 1 0 0 0 0 0 0 20 1", "  eth1:1 1 0 0 0 0 0 0 2 1"]
    lines = "\n".join(["Inter-|   Receive", " face |bytes", *rows])
    write(tmp_path / "7/net", {"dev": lines})
    assert network_bytes(7, proc=tmp_path) == (11, 22)
    assert network_bytes(8, proc=tmp_path) is None


# -- simulated kernels -------------------------------------------------------------------------------------------------
def test_simulated_kernels_pretend_within_what_they_were_given() -> None:
    clock = Clock()
    backend = SimulatedBackend(
        deployment="test",
        capacity=Slots.parse({"cpu": 4, "mem": "8g"}),
        pace=SimulatedDurations(time_scale=0.0),
        clock=clock,
    )
    spec = make_spec(slots={"cpu": "2", "mem": "1000000", "cuda.device": "1"}, devices={"cuda.device": {"SIM-0": "1"}})
    backend.start(spec)
    sampler = UsageSampler(backend, Accelerators(), interval=10.0, portal_now=clock, clock=clock)
    sampler.saw(backend.kernels())
    for _ in range(20):
        clock.now += 10
        sampler.told(sampler.report())
        sampler.measure()
    told = sampler.report()
    assert told is not None
    (usage,) = told.kernels
    assert usage.cpu is not None and 0 < usage.cpu <= 2
    assert usage.mem_bytes is not None and 0 < usage.mem_bytes <= 1_000_000
    percent = told.devices["SIM-0"].kernels[spec.kernel_id].util_pct
    assert percent is not None and 0 < percent <= 100
