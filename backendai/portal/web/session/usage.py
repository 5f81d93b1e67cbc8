"""The measured usage of a session on its panel: the current usage of each slot, and charts over time."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

from django.utils import timezone
from django.utils.translation import gettext_noop

from backendai.base.core.slots import MILLI, format_size, is_accelerator, is_size
from backendai.base.texts.translation import gettext as _
from backendai.domain.cluster.slot_types import in_order
from backendai.domain.compute.models import ComputeSession, Kernel
from backendai.domain.usage.models import UsageSample
from backendai.domain.usage.samples import Point, Series, latest, series
from backendai.portal.web.dashboard.resources import name_of_slot

HEIGHT, STEP = 48, 10  # of the drawings
SHORT, USUAL = "15m", "1h"
_FRESH = timedelta(minutes=2)
_SHORTEST = timedelta(minutes=1)
_STEP_TIME = timedelta(seconds=10)  # two samples
_LEAST_SEEN = 0.5
WINDOWS: Mapping[str, tuple[timedelta, int, str]] = {  # how far to look back, in how many points
    SHORT: (timedelta(minutes=15), 30, gettext_noop("15 minutes")),
    USUAL: (timedelta(hours=1), 60, gettext_noop("1 hour")),
    "6h": (timedelta(hours=6), 72, gettext_noop("6 hours")),
    "1d": (timedelta(days=1), 96, gettext_noop("1 day")),
    "7d": (timedelta(days=7), 84, gettext_noop("7 days")),
}
_THROUGH = (
    ("net", gettext_noop("Network"), "net_rx", "net_tx"),
    ("io", gettext_noop("Disks"), "io_read", "io_write"),
)


@dataclass(frozen=True, slots=True)
class Column:
    """One time step of a chart, in drawing units."""

    title: str
    x: float
    y: float
    width: float
    height: float


@dataclass(frozen=True, slots=True)
class Chart:
    """A chart of one slot.

    ``used``: the usage (empty: not measured); ``given``: the granted amount (empty: none); ``percent`` of it;
    ``about``: mean, peak and other facts; ``top``: the value at the upper edge.
    """

    key: str
    name: str
    used: str
    held: str
    percent: int | None
    about: str
    columns: Sequence[Column]
    top: str = ""


@dataclass(frozen=True, slots=True)
class Usage:
    """The usage of a session.

    ``window`` and ``kernel_id`` are the user's choices; ``measured_at``: the time of the last measurement, if known.
    """

    window: str
    windows: Sequence[tuple[str, str]]
    kernel_id: UUID | None
    charts: Sequence[Chart]
    width: int
    height: int
    is_measured: bool
    is_live: bool
    measured_at: datetime | None
    since: datetime
    until: datetime


def usage_of(
    session: ComputeSession, kernels: Sequence[Kernel], asked: Mapping[str, Any], *, now: datetime
) -> Usage | None:
    """Return the usage of a started session over the ``window`` and for the ``kernel`` in ``asked``.

    None before the start. Three queries; five if old samples are farther apart than the points.
    """
    if session.started_at is None:
        return None
    until = session.ended_at or now
    life = max(until - session.started_at, _SHORTEST)
    window = str(asked["window"]) if asked.get("window") in WINDOWS else _usual(life, session.ended_at is not None)
    length, points, _words = WINDOWS[window]
    if life < length:  # no empty time before its start
        length, points = life, max(min(points, int(life / _STEP_TIME)), 1)
    elif session.ended_at is None:  # a sample lies in the same step whenever one looks, so the peak stays
        step = length.total_seconds() / points
        until = datetime.fromtimestamp(math.ceil(until.timestamp() / step) * step, UTC)
    chosen = [kernel for kernel in kernels if str(kernel.pk) == asked.get("kernel")] or list(kernels)
    kernel_id = chosen[0].pk if len(chosen) == 1 and len(kernels) > 1 else None
    told = _series(session, until - length, until, points, kernel_id)
    newest = latest([session.pk]).get(session.pk, {})
    samples = [newest[kernel.pk] for kernel in chosen if kernel.pk in newest]
    fresh = [sample for sample in samples if now - sample.at < _FRESH] if session.ended_at is None else []
    draw = _Drawing(told, until - length, length, _now(fresh, chosen))
    return Usage(
        window=window,
        windows=[(key, _(words)) for key, (_length, _points, words) in WINDOWS.items()],
        kernel_id=kernel_id,
        charts=[draw.slot(slot) for slot in in_order(told.held.keys())] + [draw.through(*one) for one in _THROUGH],
        width=draw.width,
        height=HEIGHT,
        is_measured=bool(told.points or fresh),
        is_live=session.ended_at is None,
        measured_at=max((sample.at for sample in samples), default=None),
        since=until - length,
        until=until,
    )


def _usual(life: timedelta, has_ended: bool) -> str:
    """Return the default window: the last hour, less for a young session, the whole life for an ended one."""
    if not has_ended:
        return SHORT if life < WINDOWS[SHORT][0] else USUAL
    return next((key for key, (length, _points, _words) in WINDOWS.items() if life <= length), list(WINDOWS)[-1])


def _series(session: ComputeSession, since: datetime, until: datetime, points: int, kernel_id: UUID | None) -> Series:
    told = series(session.pk, since, until, points, kernel_id=kernel_id)
    if told.longest > 1.5 * told.step:  # thinned: a point for each of them, not gaps between
        points = max(int((until - since).total_seconds() / told.longest), 1)
        told = series(session.pk, since, until, points, kernel_id=kernel_id)
    return told


def _now(fresh: Iterable[UsageSample], kernels: Iterable[Kernel]) -> dict[str, float]:
    """Return the last measured values, summed over the kernels.

    Keys: slots, ``memory-<slot>`` for the memory of accelerators, and columns for bytes per second.
    """
    amounts = {kernel.pk: kernel.amounts for kernel in kernels}
    sums: dict[str, float] = {}
    for sample in fresh:
        values: dict[str, float | None] = {"cpu": sample.cpu, "mem": sample.mem_bytes}
        for slot, use in sample.devices.items():
            util = use.get("util")
            values[slot] = None if util is None else util * amounts[sample.kernel_id][slot] / MILLI
            values[f"memory-{slot}"] = use.get("mem")
        for _key, _name, *names in _THROUGH:
            for name in names:
                through = getattr(sample, name)
                values[name] = None if through is None else through / sample.seconds
        for name, value in values.items():
            if value is not None:
                sums[name] = sums.get(name, 0.0) + value
    return sums


class _Drawing:
    """Builds the charts of one series; ``now`` holds the last measured values."""

    def __init__(self, told: Series, since: datetime, length: timedelta, now: Mapping[str, float]) -> None:
        self._told, self._since, self._now = told, since, now
        self.width = max(round(length.total_seconds() / told.step), 1) * STEP

    def slot(self, slot: str) -> Chart:
        """Return the chart of one slot. An ended session shows the mean instead of the current value."""
        held = self._told.held[slot]
        values = [(point, point.used[slot]) for point in self._told.points if slot in point.used]
        mean = sum(value for _point, value in values) / len(values) if values else None
        used = self._now.get(slot, None if self._now else mean)
        about = _about([value for _point, value in values], lambda value: amount_text(slot, value))
        if (memory := self._now.get(f"memory-{slot}")) is not None:
            about = f"{about} · " + _("memory %(size)s") % {"size": format_size(round(memory))}
        return Chart(
            key=slot,
            name=name_of_slot(slot),
            used="" if used is None else amount_text(slot, used),
            held=amount_text(slot, held),
            percent=None if used is None or not held else min(round(100 * used / held), 100),
            about=about,
            columns=self._columns(values, held, lambda value: amount_text(slot, value)),
            top=amount_text(slot, held),
        )

    def through(self, key: str, name: str, into: str, out: str) -> Chart:
        """Return the chart of bytes in both directions together. Its highest column has the full height."""
        values = [
            (point, point.rates.get(into, 0.0) + point.rates.get(out, 0.0))
            for point in self._told.points
            if into in point.rates or out in point.rates
        ]
        most = max((value for _point, value in values), default=0.0)
        used = ""
        if into in self._now or out in self._now:
            down, up = (_rate(self._now[name]) if name in self._now else "–" for name in (into, out))
            used = f"↓ {down} ↑ {up}"
        return Chart(
            key=key,
            name=_(name),
            used=used,
            held="",
            percent=None,
            about=_about([value for _point, value in values], _rate),
            columns=self._columns(values, most, _rate),
            top=_rate(most) if most else "",
        )

    def _columns(
        self, values: Iterable[tuple[Point, float]], most: float, text: Callable[[float], str]
    ) -> list[Column]:
        columns = []
        for point, value in values:
            x = (point.at - self._since).total_seconds() / self._told.step * STEP
            height = max(HEIGHT * min(value / most, 1.0), _LEAST_SEEN) if most else _LEAST_SEEN
            moment = timezone.localtime(point.at).strftime("%Y-%m-%d %H:%M %Z")
            columns.append(
                Column(f"{moment}: {text(value)}", round(x, 1), round(HEIGHT - height, 1), STEP - 1, round(height, 1))
            )
        return columns


def _about(values: Sequence[float], text: Callable[[float], str]) -> str:
    if not values:
        return ""
    words = {"mean": text(sum(values) / len(values)), "peak": text(max(values))}
    return _("mean %(mean)s · peak %(peak)s") % words


def amount_text(slot: str, value: float) -> str:
    """Return an amount of a slot as text: bytes with their unit, other amounts as a number."""
    if is_size(slot):
        return format_size(round(value))
    return f"{value:.2f}".rstrip("0").rstrip(".") if is_accelerator(slot) or value < 100 else f"{value:.0f}"


def _rate(value: float) -> str:
    return _("%(size)s/s") % {"size": format_size(round(value))}
