"""Reads the measured usage of sessions, with a fixed number of queries for each function.

Callers check visibility: they pass only ids of sessions that the user may see.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

from django.db.models import F, FloatField, Func, IntegerField, Max, OuterRef, Subquery, Sum, TextField
from django.db.models.fields.json import KeyTextTransform
from django.db.models.functions import Cast
from django.db.models.lookups import IsNull

from backendai.base.core.slots import MILLI, Slots, is_accelerator
from backendai.base.db.bulk import among
from backendai.domain.compute.models import Kernel
from backendai.domain.compute.services.status.ledger import slots_of
from backendai.domain.usage.models import UsageSample
from backendai.domain.usage.recording import keep as keep

MOST_POINTS = 500
THROUGH = ("net_rx", "net_tx", "io_read", "io_write")
_EDGE = 0.001  # seconds
_Row = dict[str, Any]  # sums over samples of one kernel


@dataclass(frozen=True, slots=True)
class UsageAverages:
    """The mean use of a session over a window. ``slots``: the used share of the allocation of each slot, 0 to 1 (None:
    not measured for all kernels). ``covered_seconds``: the measured part of the window, for the kernel with the fewest
    samples."""

    slots: Mapping[str, float | None]
    covered_seconds: float


@dataclass(frozen=True, slots=True)
class Point:
    """Mean use over the step that begins ``at``. ``used``: by slot, in its unit (cores, bytes, devices). ``memory``:
    bytes of accelerators by slot. ``rates``: bytes per second by the names of ``THROUGH``. Unmeasured values are
    missing."""

    at: datetime
    used: Mapping[str, float]
    memory: Mapping[str, float]
    rates: Mapping[str, float]


@dataclass(frozen=True, slots=True)
class Series:
    """Points in time order; a step without samples has none. ``held``: the kernels' allocations, in the units of the
    points. ``longest``: seconds of the longest sample, as old ones are combined."""

    step: float
    held: Mapping[str, float]
    longest: float = 0.0
    points: Sequence[Point] = ()


def averages(session_ids: Collection[UUID], since: datetime, until: datetime) -> dict[UUID, UsageAverages]:
    """Return the mean use of each of these sessions over the window. Unknown sessions, and kernels that ended before
    the window, are left out. Two queries."""
    kernels = _kernels(session_ids, since)
    every = _devices({slot for _, amounts in kernels.values() for slot in amounts})
    rows = _samples(session_ids, since, until).values("kernel_id").annotate(**_sums(every)).order_by()
    found: dict[UUID, _Row] = {row["kernel_id"]: row for row in rows}
    of_session: dict[UUID, list[tuple[Slots, _Row]]] = defaultdict(list)
    for kernel_id, (session_id, amounts) in kernels.items():
        of_session[session_id].append((amounts, found.get(kernel_id, {})))
    window = (until - since).total_seconds()
    return {session_id: _average(members, every, window) for session_id, members in of_session.items()}


def series(session_id: UUID, since: datetime, until: datetime, points: int, *, kernel_id: UUID | None = None) -> Series:
    """Return the usage over the window, in at most ``points`` points.

    It is that of the session, or of one of its kernels. Two queries.
    """
    step = _step_of(since, until, points)
    kernels = {pk: amounts for pk, (_, amounts) in _kernels([session_id], since).items() if kernel_id in (None, pk)}
    held = sum(kernels.values(), Slots())
    every = _devices(held)
    rows = _samples([session_id], since, until)
    by_step = _by_step(rows, kernels, every, since, step)
    return Series(
        step,
        {slot: amount / MILLI for slot, amount in held.items()},
        max((row["longest"] for members in by_step.values() for _, row in members), default=0.0),
        [_point(since.timestamp() + number * step, members, every) for number, members in by_step.items()],
    )


def accelerator_parts(
    session_ids: Collection[UUID], since: datetime, until: datetime, points: int
) -> list[tuple[datetime, float]]:
    """Return over time the share (0 to 1) of their most used accelerators that these sessions used together. Two
    queries; one if they have no accelerators."""
    kernels = {pk: amounts for pk, (_, amounts) in _kernels(session_ids, since).items()}
    every = _devices(sum(kernels.values(), Slots()))
    if not every:
        return []
    step = _step_of(since, until, points)
    found = []
    for number, members in _by_step(_samples(session_ids, since, until), kernels, every, since, step).items():
        used = [part for slot in every if (part := _part(members, every, slot)) is not None]
        if used:
            found.append((since + timedelta(seconds=number * step), max(used)))
    return found


def latest(session_ids: Collection[UUID]) -> dict[UUID, dict[UUID, UsageSample]]:
    """Return the newest sample of each kernel, by session and kernel. Kernels without samples are left out. One
    query."""
    newest = UsageSample.objects.filter(kernel=OuterRef("pk")).order_by("-at").values("pk")[:1]
    kernels = Kernel.objects.filter(session__in=among(session_ids)).order_by()
    rows = UsageSample.objects.filter(pk__in=kernels.annotate(newest=Subquery(newest)).values("newest"))
    found: dict[UUID, dict[UUID, UsageSample]] = defaultdict(dict)
    for sample in rows.annotate(session_id=F("kernel__session_id")).order_by("kernel__rank"):
        found[sample.session_id][sample.kernel_id] = sample
    return dict(found)


def _step_of(since: datetime, until: datetime, points: int) -> float:
    return max((until - since).total_seconds() / min(max(points, 1), MOST_POINTS), 1.0)


def _by_step(
    rows: Any, kernels: Mapping[UUID, Slots], every: Sequence[str], since: datetime, step: float
) -> dict[int, list[tuple[Slots, _Row]]]:
    """Return sums of samples by step, each with the allocation of its kernel."""
    found: dict[int, list[tuple[Slots, _Row]]] = defaultdict(list)
    steps = _Step(F("at"), since.timestamp(), step)
    rows = rows.filter(kernel__in=list(kernels)).values("kernel_id", step=steps)
    for row in rows.annotate(**_sums(every)).order_by("step"):
        found[row["step"]].append((kernels[row["kernel_id"]], row))
    return found


def _kernels(session_ids: Collection[UUID], since: datetime) -> dict[UUID, tuple[UUID, Slots]]:
    rows = Kernel.objects.filter(session__in=among(session_ids)).exclude(ended_at__lte=since).order_by("rank")
    columns = rows.values_list("pk", "session_id", Cast("slots", TextField()))
    return {pk: (session_id, slots_of(slots)) for pk, session_id, slots in columns}


def _samples(session_ids: Collection[UUID], since: datetime, until: datetime) -> Any:
    return UsageSample.objects.filter(kernel__session__in=among(session_ids), at__gt=since, at__lte=until)


def _sums(every: Sequence[str]) -> dict[str, Any]:
    """Return the annotations that sum samples.

    ``<value>`` is the sum weighted with seconds, ``for_<value>`` the measured seconds. Values: ``cpu``, ``mem``, and of
    accelerators ``util_<number>`` and ``memory_<number>``.
    """
    values: dict[str, Any] = {"cpu": F("cpu"), "mem": Cast("mem_bytes", FloatField())}
    for number, slot in enumerate(every):
        of_slot = KeyTextTransform(slot, "devices")
        values[f"util_{number}"] = Cast(KeyTextTransform("util", of_slot), FloatField())
        values[f"memory_{number}"] = Cast(KeyTextTransform("mem", of_slot), FloatField())
    sums: dict[str, Any] = {"covered": Sum("seconds"), "longest": Max("seconds")}
    for name, value in values.items():
        sums[f"sum_{name}"] = Sum(value * F("seconds"), output_field=FloatField())
        sums[f"for_{name}"] = Sum("seconds", filter=IsNull(value, False))
    return sums | {f"sum_{name}": Sum(name) for name in THROUGH}


def _devices(slots: Iterable[str]) -> list[str]:
    return sorted(slot for slot in slots if is_accelerator(slot))


def _mean(row: _Row, name: str) -> float | None:
    seconds = row.get(f"for_{name}")
    return row[f"sum_{name}"] / seconds if seconds else None


def _average(members: Sequence[tuple[Slots, _Row]], every: Sequence[str], window: float) -> UsageAverages:
    slots = {slot: _part(members, every, slot) for slot in sorted({slot for amounts, _ in members for slot in amounts})}
    covered = min((row.get("covered") or 0.0 for _, row in members), default=0.0)
    return UsageAverages(slots, min(covered, window))


def _part(members: Sequence[tuple[Slots, _Row]], every: Sequence[str], slot: str) -> float | None:
    """Return the share of the slot that these kernels used together; None unless each kernel with the slot was
    measured."""
    used = held = 0.0
    for amounts, row in members:
        if not amounts[slot]:
            continue
        mean = _used(row, amounts, every, slot)
        if mean is None:
            return None
        used, held = used + mean, held + amounts[slot] / MILLI
    return min(used / held, 1.0) if held else None


def _used(row: _Row, amounts: Slots, every: Sequence[str], slot: str) -> float | None:
    """Return the mean use of a slot in its own unit."""
    if not is_accelerator(slot):
        return _mean(row, slot)
    util = _mean(row, f"util_{every.index(slot)}")
    return None if util is None else util * amounts[slot] / MILLI


def _point(at: float, members: Sequence[tuple[Slots, _Row]], every: Sequence[str]) -> Point:
    used, memory, rates = dict[str, float](), dict[str, float](), dict[str, float]()
    for amounts, row in members:
        for slot in amounts:
            if (mean := _used(row, amounts, every, slot)) is not None:
                used[slot] = used.get(slot, 0.0) + mean
        for number, slot in enumerate(every):
            if (mean := _mean(row, f"memory_{number}")) is not None:
                memory[slot] = memory.get(slot, 0.0) + mean
        for name in THROUGH:
            if row[f"sum_{name}"] is not None:
                rates[name] = rates.get(name, 0.0) + float(row[f"sum_{name}"]) / row["covered"]
    return Point(datetime.fromtimestamp(at, UTC), used, memory, rates)


class _Step(Func):
    """The number of the step of some seconds in which a time lies, counted from 0. The end of a step belongs to it."""

    output_field = IntegerField()

    def __init__(self, at: Any, since: float, step: float) -> None:
        super().__init__(at)
        self.since, self.step = since + _EDGE, step

    def as_postgresql(self, compiler: Any, connection: Any, **extra: Any) -> tuple[str, Any]:
        return self._as("floor", "extract(epoch FROM {})", compiler)

    def as_sqlite(self, compiler: Any, connection: Any, **extra: Any) -> tuple[str, Any]:
        return self._as("", "(julianday({}) - 2440587.5) * 86400.0", compiler)  # a cast cuts off there

    def _as(self, whole: str, seconds: str, compiler: Any) -> tuple[str, Any]:
        column, parameters = compiler.compile(self.source_expressions[0])
        passed = f"{seconds.format(column)} - {self.since:.6f}"
        return f"CAST({whole}(({passed}) / {self.step:.6f}) AS integer)", parameters
