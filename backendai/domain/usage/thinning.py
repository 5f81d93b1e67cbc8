"""Merges the old samples of each kernel to one for every five minutes, and later deletes them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple
from uuid import UUID

from django.conf import settings
from django.db import transaction

from backendai.base.db.upsert import add_samples
from backendai.domain.usage.models import UsageSample

STEP = timedelta(minutes=5)
_MOST_STEPS = 60  # in one go; five hours of samples
_MOST_DELETED = 20_000  # in one statement
_THROUGH = ("net_rx", "net_tx", "io_read", "io_write")


class _Fine(NamedTuple):
    """One stored sample."""

    kernel_id: UUID
    at: datetime
    seconds: float
    cpu: float | None
    mem_bytes: int | None
    devices: dict[str, dict[str, float]]
    net_rx: int | None
    net_tx: int | None
    io_read: int | None
    io_write: int | None


def thin(now: datetime) -> int:
    """Merge and delete old samples; return how many rows were removed.

    Merges those older than ``USAGE_FINE_FOR``, and deletes those older than ``USAGE_KEPT_FOR``. Each call does a
    limited part, the oldest first.
    """
    gone = _delete_old(now - settings.USAGE_KEPT_FOR)
    limit = _floor(now - settings.USAGE_FINE_FOR)
    for _ in range(_MOST_STEPS):
        fine = UsageSample.objects.filter(is_thinned=False, at__lt=limit).order_by("at")
        oldest = fine.values_list("at", flat=True).first()
        if oldest is None:
            break
        gone += _thin_step(_floor(oldest))
    return gone


def _delete_old(limit: datetime) -> int:
    """Delete the oldest fine and merged rows; each kind has an index for it. Returns how many."""
    gone = 0
    for is_thinned in (True, False):
        old = UsageSample.objects.filter(is_thinned=is_thinned, at__lt=limit).order_by("at")
        gone += UsageSample.objects.filter(pk__in=list(old.values_list("pk", flat=True)[:_MOST_DELETED])).delete()[0]
    return gone


def _thin_step(begin: datetime) -> int:
    with transaction.atomic():
        rows = UsageSample.objects.filter(is_thinned=False, at__gte=begin, at__lt=begin + STEP)
        fine = [_Fine(*row) for row in rows.order_by("at").values_list(*_Fine._fields)]
        rows.delete()
        of_kernel: dict[UUID, list[_Fine]] = defaultdict(list)
        for one in fine:
            of_kernel[one.kernel_id].append(one)
        written = add_samples(_together(some) for some in of_kernel.values())
    return len(fine) - len(written)


def _together(some: Sequence[_Fine]) -> tuple[UUID, datetime, Sequence[Any]]:
    """Return one sample that stands for all of these."""
    seconds = sum(one.seconds for one in some)
    memory = _mean((one.mem_bytes, one.seconds) for one in some)
    columns = (
        seconds,
        _mean((one.cpu, one.seconds) for one in some),
        None if memory is None else round(memory),
        _devices(some),
        *(_total(getattr(one, name) for one in some) for name in _THROUGH),
        True,
    )
    return some[0].kernel_id, some[-1].at, columns


def _devices(some: Sequence[_Fine]) -> dict[str, dict[str, float]]:
    slots = sorted({slot for one in some for slot in one.devices})
    told: dict[str, dict[str, float]] = {slot: {} for slot in slots}
    for slot in slots:
        for name in ("util", "mem"):
            mean = _mean((one.devices.get(slot, {}).get(name), one.seconds) for one in some)
            if mean is not None:
                told[slot][name] = round(mean, 4) if name == "util" else round(mean)
    return told


def _mean(values: Iterable[tuple[float | None, float]]) -> float | None:
    told = [(value, seconds) for value, seconds in values if value is not None]
    whole = sum(seconds for _, seconds in told)
    return sum(value * seconds for value, seconds in told) / whole if whole else None


def _total(values: Iterable[int | None]) -> int | None:
    told = [value for value in values if value is not None]
    return min(sum(told), 2**63 - 1) if told else None


def _floor(moment: datetime) -> datetime:
    step = STEP.total_seconds()
    return datetime.fromtimestamp(moment.timestamp() // step * step, UTC)
