"""Bar charts by day."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from backendai.domain.usage.statistics import Line

HEIGHT, STEP = 120, 10


@dataclass(frozen=True, slots=True)
class Column:
    """A day in a chart, with its position and height in drawing units."""

    day: str
    hours: float
    x: int
    y: float
    height: float


@dataclass(frozen=True, slots=True)
class DayChart:
    """A chart of hours by day. ``most``: the hours of the highest column, which has the full height of the drawing."""

    columns: Sequence[Column]
    most: float
    width: int
    height: int = HEIGHT


def chart_of(days: Sequence[Line], slot: str) -> DayChart:
    """Return a chart with a column for each day."""
    most = max((day.hours.get(slot, 0.0) for day in days), default=0.0)
    columns = []
    for number, day in enumerate(days):
        hours = day.hours.get(slot, 0.0)
        height = round(HEIGHT * hours / (most or 1.0), 1)
        columns.append(Column(day.name, round(hours, 2), number * STEP, HEIGHT - height, height))
    return DayChart(columns, round(most, 2), STEP * len(days))


def usual_slot(slots: Sequence[str]) -> str:
    """Return the default slot of a chart: GPUs if there are any, else ``cpu``."""
    return next((one for one in slots if "cuda" in one), "cpu")
