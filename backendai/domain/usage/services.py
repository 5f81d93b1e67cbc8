"""Counts the amounts that placed kernels hold, exactly once: in one transaction, from the end of the last pass on.

Reads kernels that hold slots now, kernels whose last placement is still open, and kernels placed since then that may
have ended.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from typing import Any
from uuid import UUID

from django.db import connection, transaction
from django.db.models import Max, QuerySet, TextField
from django.db.models.functions import Cast

from backendai.base.core.slots import MILLI, Slots
from backendai.base.db import advisory_locks
from backendai.base.db.upsert import add_to_buckets, write_marks
from backendai.domain.compute.models import Kernel, SchedulingRecord
from backendai.domain.compute.services.status.ledger import slots_of
from backendai.domain.compute.status import PLACED, TERMINAL, Status
from backendai.domain.usage.models import ObservationMark, ObservedKernel

# Rows of the history get their ids before they are committed: what is younger may still come.
_SLACK = timedelta(minutes=10)

BucketKey = tuple[int, str, str, int, str, str]  # group, user, project, domain, day, slot


@dataclass(frozen=True, slots=True)
class _UsageInterval:
    """A part of one kernel's placement: from the time up to which it is counted to the time up to which it can be
    counted now."""

    kernel_id: UUID
    generation: int
    begin: datetime
    end: datetime
    is_closed: bool
    holder: tuple[int, UUID, UUID, int]
    slots: Slots


def observe(now: datetime) -> int:
    """Count the amounts that kernels held since the last pass; return the number of counted kernels.

    Nothing counts twice, also after crashes and in concurrent runs, as marks and amounts are saved in one transaction.
    A failed start between two passes is not counted if the kernel was placed again. A fixed number of statements.
    """
    with transaction.atomic():
        if not _only_observer():
            return 0
        mark = ObservationMark.objects.filter(pk=1).values_list("record_id", flat=True).first()
        if mark is None:  # the platform is older than this count: it begins with what is placed now
            mark = _settled_record(0, now)
        stretches = [stretch for row in _kernels(mark) if (stretch := _stretch(row, now)) is not None]
        add_to_buckets(_amounts(stretches))
        write_marks((one.kernel_id, one.generation, one.end, one.is_closed) for one in stretches)
        ObservedKernel.objects.filter(is_closed=True, until__lte=now - 2 * _SLACK).delete()
        ObservationMark.objects.update_or_create(pk=1, defaults={"record_id": _settled_record(mark, now)})
    return len(stretches)


def _only_observer() -> bool:
    if connection.vendor != "postgresql":
        return True  # the write transaction itself
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_try_advisory_xact_lock(%s)", [advisory_locks.OBSERVING])
        return bool(cursor.fetchone()[0])


def _settled_record(mark: int, now: datetime) -> int:
    settled = SchedulingRecord.objects.filter(pk__gt=mark, created_at__lte=now - _SLACK)
    return settled.aggregate(newest=Max("pk"))["newest"] or mark


def _kernels(mark: int) -> Iterable[tuple[Any, ...]]:
    """Return each kernel to count once, in its current state."""
    placed_since = SchedulingRecord.objects.filter(pk__gt=mark, to_status=Status.SCHEDULED).values("session_id")
    kernels = Kernel.objects.filter(generation__gt=0)
    found: dict[UUID, tuple[Any, ...]] = {}
    for some in (
        kernels.filter(status__in=PLACED),
        kernels.filter(observed__is_closed=False).exclude(status__in=PLACED),
        kernels.filter(session__in=placed_since),
    ):
        found |= {row[0]: row for row in _columns(some)}
    return found.values()


def _columns(kernels: QuerySet[Kernel]) -> Iterable[tuple[Any, ...]]:
    return kernels.order_by().values_list(
        "pk", "generation", "status", "moved_from", "changed_at", "ended_at", Cast("slots", TextField()),
        "session__scheduled_at", "session__resource_group_id", "session__owner_id", "session__project_id",
        "session__project__domain_id",
        "observed__generation", "observed__until", "observed__is_closed",
    )  # fmt: skip


def _stretch(row: tuple[Any, ...], now: datetime) -> _UsageInterval | None:
    """Return the part of this kernel's placement to count; None if all of it is counted."""
    pk, generation, status, moved_from, changed_at, ended_at, slots, placed_at, *rest = row
    *holder, seen_generation, seen_until, seen_closed = rest
    same = seen_generation == generation
    if same and seen_closed:
        return None
    begin = seen_until if same else max(filter(None, [placed_at, seen_until]), default=None)
    end = _end_of_placement(status, moved_from, changed_at, ended_at)
    if begin is None or (end is None and now <= begin and same):
        return None
    if end is None and status not in PLACED:  # it had gone back to wait before it was cancelled, at an unknown time
        end = begin
    return _UsageInterval(
        kernel_id=pk,
        generation=generation,
        begin=begin,
        end=max(begin, now if end is None else end),
        is_closed=end is not None,
        holder=(holder[0], holder[1], holder[2], holder[3]),
        slots=slots_of(slots),
    )


def _end_of_placement(status: str, moved_from: str, changed_at: datetime, ended_at: datetime | None) -> datetime | None:
    if status in TERMINAL:
        return None if moved_from == Status.PENDING else ended_at or changed_at
    return changed_at if status == Status.PENDING else None


def _amounts(stretches: Iterable[_UsageInterval]) -> dict[BucketKey, float]:
    amounts: dict[BucketKey, float] = defaultdict(float)
    for one in stretches:
        group, user, project, domain = one.holder
        for day, seconds in _by_day(one.begin, one.end):
            for slot, amount in one.slots.items():
                key = (group, str(user), str(project), domain, day.isoformat(), slot)
                amounts[key] += amount / MILLI * seconds
    return amounts


def _by_day(begin: datetime, end: datetime) -> Iterator[tuple[date, float]]:
    begin, end = begin.astimezone(UTC), end.astimezone(UTC)
    while begin < end:
        midnight = datetime.combine(begin.date() + timedelta(days=1), time(), UTC)
        until = min(end, midnight)
        yield begin.date(), (until - begin).total_seconds()
        begin = until
