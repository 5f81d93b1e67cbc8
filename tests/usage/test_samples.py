"""Samples of what kernels use: taken in once and from their own node only, and averaged over sessions."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import uuid4

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from pydantic import ValidationError

from backendai.base.wire.live import DeviceUse
from backendai.base.wire.usage import DeviceUsage, KernelUsage, UsageReport
from backendai.domain.cluster.models import Agent
from backendai.domain.compute.models import ComputeSession, Kernel
from backendai.domain.compute.services.status.moves import move_kernels
from backendai.domain.compute.status import Status
from backendai.domain.usage.models import UsageBucket, UsageSample
from backendai.domain.usage.samples import averages, keep, latest, series
from tests.cast import Cast
from tests.factories import make_agent, make_running_session

NOON = datetime(2036, 3, 10, 12, 0, tzinfo=UTC)  # after the sessions of these tests have started
MIB = 2**20


def at(seconds: float) -> datetime:
    return NOON + timedelta(seconds=seconds)


def usage(kernel: Kernel, seconds: float = 10.0, **over: Any) -> KernelUsage:
    return KernelUsage(kernel_id=kernel.pk, generation=kernel.generation, seconds=seconds, **over)


def report(when: datetime, *kernels: KernelUsage, **over: Any) -> UsageReport:
    return UsageReport(at=when.timestamp(), kernels=list(kernels), **over)


def tell(session: ComputeSession, when: datetime, seconds: float = 10.0, **over: Any) -> int:
    """Have every kernel of the session report the same; returns how many samples were new."""
    told = 0
    for kernel in session.kernels.select_related("agent"):
        assert kernel.agent
        told += keep([(kernel.agent, report(when, usage(kernel, seconds, **over)))], when)
    return told


def give_devices(session: ComputeSession, slot: str, amount: str, devices: dict[str, str]) -> Kernel:
    kernel = session.kernels.get()
    kernel.slots, kernel.devices = kernel.slots | {slot: amount}, {slot: devices}
    kernel.save()
    return kernel


@pytest.fixture
def agent(cast: Cast) -> Agent:
    return make_agent(cpu=16)


@pytest.fixture
def session(cast: Cast, agent: Agent) -> ComputeSession:
    return make_running_session(cast.alice, agent, resources={"cpu": 2, "mem": "512m"})


def test_it_keeps_what_a_kernel_used(session: ComputeSession) -> None:
    assert tell(session, at(0), cpu=0.5, mem_bytes=128 * MIB, net_rx=1, net_tx=2, io_read=3, io_write=4) == 1
    sample = UsageSample.objects.get()
    assert (sample.at, sample.seconds, sample.cpu, sample.mem_bytes) == (NOON, 10.0, 0.5, 128 * MIB)
    assert (sample.net_rx, sample.net_tx, sample.io_read, sample.io_write) == (1, 2, 3, 4)
    assert not sample.is_thinned


def test_a_report_that_comes_again_counts_once(session: ComputeSession) -> None:
    assert tell(session, at(0), cpu=1.0) == 1
    assert tell(session, at(0), cpu=2.0) == 0
    assert UsageSample.objects.get().cpu == 1.0
    assert UsageBucket.objects.get(slot="cpu").used_seconds == 10.0


def test_no_second_is_counted_twice(session: ComputeSession) -> None:
    tell(session, at(0), cpu=1.0)
    tell(session, at(4), cpu=1.0)  # says 10 seconds again
    assert list(UsageSample.objects.values_list("seconds", flat=True)) == [10.0, 4.0]


def test_it_believes_a_node_about_its_own_kernels_of_this_generation_only(cast: Cast, session: ComputeSession) -> None:
    other, kernel = make_agent(), session.kernels.get()
    assert keep([(other, report(at(0), usage(kernel, cpu=1.0)))], at(0)) == 0
    stale = usage(kernel, cpu=1.0).model_copy(update={"generation": kernel.generation - 1})
    unknown = usage(kernel, cpu=1.0).model_copy(update={"kernel_id": uuid4()})
    assert kernel.agent
    assert keep([(kernel.agent, report(at(0), stale, unknown))], at(0)) == 0


@pytest.mark.parametrize("away", [-3600, 3600])
def test_what_is_far_from_now_is_dropped(session: ComputeSession, agent: Agent, away: float) -> None:
    told = report(at(away), usage(session.kernels.get(), cpu=1.0))
    assert keep([(agent, told)], at(0)) == 0


def test_a_kernel_cannot_have_used_anything_before_it_started(session: ComputeSession, agent: Agent) -> None:
    kernel = session.kernels.get()
    assert kernel.started_at
    now = kernel.started_at + timedelta(seconds=3)
    keep([(agent, report(now, usage(kernel, 600.0, cpu=1.0)))], now)
    assert UsageSample.objects.get().seconds == pytest.approx(3.0)


@pytest.mark.parametrize(
    "wrong",
    [{"seconds": 0.0}, {"seconds": float("inf")}, {"seconds": 1e9}, {"mem_bytes": -1}, {"net_rx": 2**63},
     {"memory_kills": -1}],
)  # fmt: skip
def test_numbers_that_make_no_sense_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        KernelUsage(kernel_id=uuid4(), generation=1, **({"seconds": 1.0} | wrong))


@pytest.mark.parametrize(("told", "kept"), [(float("nan"), None), (float("inf"), None), (-1.0, 0.0), (1e9, 4096.0)])
def test_cores_are_cut_to_what_there_can_be(told: float, kept: float | None) -> None:
    assert KernelUsage(kernel_id=uuid4(), generation=1, seconds=1.0, cpu=told).cpu == kept


def test_many_kernels_of_many_nodes_cost_as_many_statements_as_one(cast: Cast) -> None:
    def told(number: int, when: datetime) -> list[tuple[Agent, UsageReport]]:
        agents = [make_agent(cpu=16) for _ in range(number)]
        sessions = [make_running_session(cast.alice, agent, cluster_size=number) for agent in agents]
        return [
            (agent, report(when, *(usage(kernel, cpu=0.5) for kernel in session.kernels.all())))
            for agent, session in zip(agents, sessions, strict=True)
        ]

    one, many = told(1, at(0)), told(3, at(0))
    with CaptureQueriesContext(
        connection,
    ) as few:
        assert keep(one, at(0)) == 1
    with CaptureQueriesContext(connection) as more:
        assert keep(many, at(0)) == 9
    assert len(few) == len(more)


def test_used_hours_go_to_the_owners_day(cast: Cast, session: ComputeSession) -> None:
    tell(session, at(0), cpu=0.5, mem_bytes=128 * MIB)
    tell(session, at(20), 20.0, cpu=1.0)
    cpu, mem = (UsageBucket.objects.get(slot=slot) for slot in ("cpu", "mem"))
    assert (cpu.user, cpu.project, cpu.day, cpu.amount_seconds) == (cast.alice, cast.project, NOON.date(), 0.0)
    assert (cpu.used_seconds, cpu.measured_seconds) == (0.5 * 10 + 20, 2 * 30)
    assert (mem.used_seconds, mem.measured_seconds) == (1280 * MIB, 5120 * MIB)


# -- accelerators ------------------------------------------------------------------------------------------------------
def test_a_whole_device_counts_as_busy_as_it_is(session: ComputeSession, agent: Agent) -> None:
    kernel = give_devices(session, "cuda.device", "2", {"GPU-a": "1", "GPU-b": "1"})
    devices = {
        "GPU-a": DeviceUsage(util_pct=90.0, mem_used=5, kernels={kernel.pk: DeviceUse(util_pct=80.0, mem_used=4)}),
        "GPU-b": DeviceUsage(util_pct=40.0, mem_used=6, is_complete=True),
    }
    keep([(agent, report(at(0), usage(kernel), devices=devices))], at(0))
    assert UsageSample.objects.get().devices == {"cuda.device": {"util": 0.6, "mem": 10}}
    bucket = UsageBucket.objects.get(slot="cuda.device")
    assert (bucket.used_seconds, bucket.measured_seconds) == (pytest.approx(12.0), 20.0)


@pytest.mark.parametrize(
    ("device", "kept"),
    [
        (DeviceUsage(util_pct=90.0, mem_used=5), {}),  # somebody's: whose is not known
        (DeviceUsage(util_pct=90.0, mem_used=5, is_complete=True), {"cuda.shares": {"util": 0.0, "mem": 0}}),
        (None, {}),
    ],
)
def test_a_share_of_a_device_counts_by_its_own_processes(
    session: ComputeSession, agent: Agent, device: DeviceUsage | None, kept: dict[str, Any]
) -> None:
    kernel = give_devices(session, "cuda.shares", "0.5", {"GPU-a": "0.5"})
    keep([(agent, report(at(0), usage(kernel), devices={"GPU-a": device} if device else {}))], at(0))
    assert UsageSample.objects.get().devices == kept


def test_use_of_a_share_is_told_of_the_share(session: ComputeSession, agent: Agent) -> None:
    kernel = give_devices(session, "cuda.shares", "0.5", {"GPU-a": "0.5"})
    device = DeviceUsage(util_pct=90.0, kernels={kernel.pk: DeviceUse(util_pct=20.0)})
    keep([(agent, report(at(0), usage(kernel), devices={"GPU-a": device}))], at(0))
    assert UsageSample.objects.get().devices == {"cuda.shares": {"util": 0.4}}


# -- reading -----------------------------------------------------------------------------------------------------------
def test_averages_are_weighted_with_time_and_told_of_what_was_given(session: ComputeSession) -> None:
    tell(session, at(10), 10.0, cpu=2.0, mem_bytes=512 * MIB)
    tell(session, at(40), 30.0, cpu=0.0, mem_bytes=0)
    told = averages([session.pk], at(0), at(60))[session.pk]
    assert told.slots == {"cpu": pytest.approx(0.25), "mem": pytest.approx(0.25)}
    assert told.covered_seconds == 40.0


def test_samples_outside_of_the_window_do_not_count(session: ComputeSession) -> None:
    tell(session, at(10), cpu=2.0)
    tell(session, at(100), cpu=0.0)
    assert averages([session.pk], at(10), at(100))[session.pk].slots["cpu"] == 0.0


def test_without_samples_nothing_is_known(session: ComputeSession) -> None:
    told = averages([session.pk, uuid4()], at(0), at(60))
    assert list(told) == [session.pk]
    assert told[session.pk].slots == {"cpu": None, "mem": None}
    assert told[session.pk].covered_seconds == 0.0


def test_a_cluster_is_measured_when_all_its_kernels_are(cast: Cast, agent: Agent) -> None:
    session = make_running_session(cast.alice, agent, cluster_size=2, resources={"cpu": 1, "mem": "512m"})
    one, other = session.kernels.all()
    keep([(agent, report(at(10), usage(one, cpu=1.0)))], at(10))
    told = averages([session.pk], at(0), at(60))[session.pk]
    assert (told.slots["cpu"], told.covered_seconds) == (None, 0.0)
    keep([(agent, report(at(10), usage(other, 5.0, cpu=0.0)))], at(10))
    told = averages([session.pk], at(0), at(60))[session.pk]
    assert (told.slots["cpu"], told.covered_seconds) == (0.5, 5.0)


def test_a_kernel_that_was_done_before_is_asked_for_nothing(cast: Cast, agent: Agent) -> None:
    session = make_running_session(cast.alice, agent, cluster_size=2, resources={"cpu": 1, "mem": "512m"})
    one, other = session.kernels.all()
    keep([(agent, report(at(30), usage(one, 30.0, cpu=0.5)))], at(30))
    move_kernels([other.pk], Status.TERMINATED, now=at(10))
    told = averages([session.pk], at(0), at(60))[session.pk]
    assert (told.slots["cpu"], told.covered_seconds) == (None, 0.0), "it held something for a part of the time"
    told = averages([session.pk], at(10), at(60))[session.pk]
    assert (told.slots["cpu"], told.covered_seconds) == (0.5, 30.0)


def test_averages_of_accelerators(session: ComputeSession, agent: Agent) -> None:
    kernel = give_devices(session, "cuda.device", "1", {"GPU-a": "1"})
    for moment, percent in ((10, 100.0), (20, 50.0), (30, None)):
        devices = {"GPU-a": DeviceUsage(util_pct=percent)}
        keep([(agent, report(at(moment), usage(kernel), devices=devices))], at(moment))
    told = averages([session.pk], at(0), at(60))[session.pk]
    assert told.slots == {"cpu": None, "cuda.device": 0.75, "mem": None}
    assert told.covered_seconds == 30.0


def test_averages_of_many_sessions_cost_two_queries(cast: Cast, agent: Agent) -> None:
    sessions = [make_running_session(cast.alice, agent) for _ in range(5)]
    for session in sessions:
        tell(session, at(10), cpu=0.5)
    with CaptureQueriesContext(connection) as asked:
        told = averages([session.pk for session in sessions], at(0), at(60))
    assert len(asked) == 2
    assert [told[session.pk].slots["cpu"] for session in sessions] == [0.5] * 5


def test_a_series_has_a_point_for_each_step_with_samples(session: ComputeSession) -> None:
    for moment in (10, 20, 40):
        tell(session, at(moment), cpu=moment / 10, mem_bytes=MIB, net_rx=100)
    told = series(session.pk, at(0), at(40), 2)
    assert told.step == 20.0
    assert [(point.at, point.used["cpu"], point.rates["net_rx"]) for point in told.points] == [
        (at(0), pytest.approx(1.5), 10.0),
        (at(20), pytest.approx(4.0), 10.0),
    ]
    assert told.held == {"cpu": 2.0, "mem": 512 * MIB}


def test_a_series_adds_up_kernels_or_tells_of_one(cast: Cast, agent: Agent) -> None:
    session = make_running_session(cast.alice, agent, cluster_size=2)
    tell(session, at(10), cpu=0.5)
    kernel = session.kernels.all()[0]
    assert series(session.pk, at(0), at(60), 1).points[0].used["cpu"] == 1.0
    assert series(session.pk, at(0), at(60), 1, kernel_id=kernel.pk).points[0].used["cpu"] == 0.5
    assert series(session.pk, at(0), at(60), 1, kernel_id=uuid4()).points == []


def test_the_latest_sample_of_each_kernel(cast: Cast, agent: Agent) -> None:
    session = make_running_session(cast.alice, agent, cluster_size=2)
    make_running_session(cast.alice, agent)
    tell(session, at(10), cpu=0.5)
    tell(session, at(20), cpu=0.75)
    with CaptureQueriesContext(connection) as asked:
        told = latest([session.pk, uuid4()])
    assert len(asked) == 1
    assert {pk: sample.cpu for pk, sample in told[session.pk].items()} == {
        kernel.pk: 0.75 for kernel in session.kernels.all()
    }


def test_programs_that_the_memory_limit_ended_are_counted_since_the_start(session: ComputeSession) -> None:
    def known() -> tuple[int, datetime | None]:
        kernel.refresh_from_db()
        return kernel.memory_kills, kernel.memory_killed_at

    kernel, version = session.kernels.get(), session.version
    assert tell(session, at(0), cpu=1.0, memory_kills=0) == 1
    assert known() == (0, None)
    tell(session, at(10), cpu=1.0, memory_kills=2)
    tell(session, at(20), cpu=1.0, memory_kills=2)
    assert known() == (2, at(10))
    session.refresh_from_db()
    assert session.version == version + 1, "open pages look again, once"
    tell(session, at(30), cpu=1.0, memory_kills=3)
    assert known() == (3, at(30))
    Kernel.objects.update(started_at=at(31))  # it was started again, and its new container counts from 0
    tell(session, at(50), cpu=1.0, memory_kills=1)
    assert known() == (1, at(50))
    other = usage(kernel, memory_kills=9).model_copy(update={"generation": kernel.generation - 1})
    assert kernel.agent
    keep([(kernel.agent, report(at(60), other)), (make_agent(), report(at(60), usage(kernel, memory_kills=9)))], at(60))
    assert known() == (1, at(50)), "its agent alone is believed"
