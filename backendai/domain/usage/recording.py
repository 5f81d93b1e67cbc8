"""Stores measurements of kernels from agents. Agents are not trusted: they can report only kernels that they hold."""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

from django.db import transaction
from django.db.models import Case, F, OuterRef, Subquery, TextField, When
from django.db.models.functions import Cast

from backendai.base.core.slots import MILLI, Slots, parse_amount
from backendai.base.db.bulk import among
from backendai.base.db.upsert import add_samples, add_used
from backendai.base.wire.usage import DeviceUsage, KernelUsage, UsageReport
from backendai.domain.cluster.models import Agent
from backendai.domain.compute.models import Kernel
from backendai.domain.compute.services.life.reports import note_memory_kills
from backendai.domain.compute.services.status.ledger import slots_of
from backendai.domain.compute.status import PLACED
from backendai.domain.usage.models import UsageSample

logger = logging.getLogger(__name__)

_OLDEST, _AHEAD = timedelta(minutes=10), timedelta(minutes=1)
_SHORTEST = 0.5  # seconds

Report = tuple[Agent, UsageReport]
_Used = dict[str, tuple[float, float]]  # slot → used and held, in the slot's unit


@dataclass(frozen=True, slots=True)
class _Held:
    """The row of a kernel: owner, devices, and the time up to which it is measured."""

    agent_id: UUID
    generation: int
    slots: Slots
    devices: Mapping[str, Mapping[str, str]]
    since: datetime | None
    holder: tuple[int, str, str, int]
    memory_kills: int

    def is_of(self, agent: Agent, usage: KernelUsage) -> bool:
        """Return whether the agent holds the kernel in that generation."""
        return (self.agent_id, self.generation) == (agent.pk, usage.generation)


@dataclass(frozen=True, slots=True)
class _Sample:
    """The values of one new row, and the amounts to add to the daily sums."""

    kernel_id: UUID
    at: datetime
    columns: Sequence[Any]
    holder: tuple[int, str, str, int]
    seconds: float
    used: _Used


def keep(reports: Iterable[Report], now: datetime) -> int:
    """Store the measurements of kernels, and add them to the owners' daily sums; return the number of new samples.

    Only kernels that the agents hold in that generation count. Nothing counts twice: a sample never begins before the
    previous one has ended. Measurements older than ten minutes or in the future are dropped. Three statements for any
    number of agents and kernels, and three more when the memory limit has ended programs.
    """
    timely = [(agent, report, at) for agent, report in reports if (at := _moment(agent, report, now)) is not None]
    ids = {usage.kernel_id for _, report, _ in timely for usage in report.kernels}
    if not ids:
        return 0
    with transaction.atomic():
        held = _held(ids)
        samples = {one.kernel_id: one for one in _samples(timely, held)}  # of one told twice, the last
        written = add_samples((one.kernel_id, one.at, one.columns) for one in samples.values())
        add_used(_amounts(samples[kernel_id] for kernel_id in written))
        note_memory_kills(_memory_kills(timely, held), now)
    return len(written)


def _moment(agent: Agent, report: UsageReport, now: datetime) -> datetime | None:
    at = datetime.fromtimestamp(report.at, UTC)
    if now - _OLDEST <= at <= now + _AHEAD:
        return min(at, now)
    logger.info("agent %s measured its kernels at %s, which is too far from now: dropped", agent.name, at)
    return None


def _held(ids: set[UUID]) -> dict[UUID, _Held]:
    newest = UsageSample.objects.filter(kernel=OuterRef("pk")).order_by("-at").values("at")[:1]
    rows = Kernel.objects.filter(pk__in=among(ids), status__in=PLACED).order_by().values_list(
        "pk", "agent_id", "generation", Cast("slots", TextField()), "devices", "started_at", Subquery(newest),
        "session__resource_group_id", "session__owner_id", "session__project_id", "session__project__domain_id",
        Case(When(memory_killed_at__gte=F("started_at"), then=F("memory_kills")), default=0),
    )  # fmt: skip
    return {
        pk: _Held(
            agent_id=agent_id,
            generation=generation,
            slots=slots_of(slots),
            devices=devices,
            since=max(filter(None, [started_at, last]), default=None),
            holder=(group, str(owner), str(project), domain),
            memory_kills=kills,
        )
        for pk, agent_id, generation, slots, devices, started_at, last, group, owner, project, domain, kills in rows
    }


def _samples(timely: Iterable[tuple[Agent, UsageReport, datetime]], held: Mapping[UUID, _Held]) -> Iterator[_Sample]:
    for agent, report, at in timely:
        for usage in report.kernels:
            kernel = held.get(usage.kernel_id)
            if kernel is None or not kernel.is_of(agent, usage):
                continue
            seconds = usage.seconds if kernel.since is None else min(usage.seconds, (at - kernel.since).total_seconds())
            if seconds >= _SHORTEST:
                yield _sample(usage, kernel, report.devices, at, seconds)


def _memory_kills(timely: Iterable[tuple[Agent, UsageReport, datetime]], held: Mapping[UUID, _Held]) -> dict[UUID, int]:
    """Return by kernel how many programs the memory limit has ended, if these are more than known."""
    return {
        usage.kernel_id: usage.memory_kills
        for agent, report, _ in timely
        for usage in report.kernels
        if usage.memory_kills
        and (kernel := held.get(usage.kernel_id)) is not None
        and kernel.is_of(agent, usage)
        and usage.memory_kills > kernel.memory_kills
    }


def _sample(
    usage: KernelUsage, kernel: _Held, devices: Mapping[str, DeviceUsage], at: datetime, seconds: float
) -> _Sample:
    told = {slot: _of_slot(usage.kernel_id, ids, devices) for slot, ids in kernel.devices.items()}
    through = (usage.net_rx, usage.net_tx, usage.io_read, usage.io_write)
    return _Sample(
        kernel_id=usage.kernel_id,
        at=at,
        columns=(
            seconds,
            usage.cpu,
            usage.mem_bytes,
            {slot: use for slot, use in told.items() if use},
            *through,
            False,
        ),
        holder=kernel.holder,
        seconds=seconds,
        used=_used(usage, kernel.slots, told),
    )


def _of_slot(kernel_id: UUID, ids: Mapping[str, str], devices: Mapping[str, DeviceUsage]) -> dict[str, float]:
    """Return a kernel's use of its devices of one slot: ``util`` as a share of its allocation, and ``mem``."""
    utils, mems = list[tuple[float, float]](), list[int]()
    for device_id, text in ids.items():
        part = parse_amount("devices", text, field="devices") / MILLI
        percent, mem = _of_device(kernel_id, devices.get(device_id), is_whole=part >= 1)
        if percent is not None and part > 0:
            utils.append((percent / 100, part))
        if mem is not None:
            mems.append(mem)
    use = {}
    if utils:
        use["util"] = round(min(sum(util for util, _ in utils) / sum(part for _, part in utils), 1.0), 4)
    if mems:
        use["mem"] = sum(mems)
    return use


def _of_device(kernel_id: UUID, device: DeviceUsage | None, *, is_whole: bool) -> tuple[float | None, int | None]:
    """Return a kernel's use of a device. If it has the whole device, this is the device's total use, so that a program
    that the driver does not recognise never looks idle."""
    if device is None:
        return None, None
    own = device.kernels.get(kernel_id)
    percent, mem = (own.util_pct, own.mem_used) if own else (None, None)
    if own is None and device.is_complete and not is_whole:
        percent, mem = 0.0, 0
    if is_whole:
        percent = device.util_pct if percent is None else percent
        mem = device.mem_used if mem is None else mem
    return percent, mem


def _used(usage: KernelUsage, slots: Slots, told: Mapping[str, Mapping[str, float]]) -> _Used:
    used: _Used = {}
    if usage.cpu is not None and slots["cpu"]:
        used["cpu"] = usage.cpu, slots["cpu"] / MILLI
    if usage.mem_bytes is not None and slots["mem"]:
        used["mem"] = float(usage.mem_bytes), slots["mem"] / MILLI
    for slot, use in told.items():
        if "util" in use:
            used[slot] = use["util"] * slots[slot] / MILLI, slots[slot] / MILLI
    return used


def _amounts(samples: Iterable[_Sample]) -> dict[tuple[int, str, str, int, str, str], tuple[float, float]]:
    sums: dict[tuple[int, str, str, int, str, str], tuple[float, float]] = defaultdict(lambda: (0.0, 0.0))
    for one in samples:
        day = one.at.date().isoformat()
        for slot, (used, held) in one.used.items():
            key = (*one.holder, day, slot)
            before = sums[key]
            sums[key] = before[0] + used * one.seconds, before[1] + held * one.seconds
    return sums
