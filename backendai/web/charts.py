"""Bar charts by day."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from backendai.usage.statistics import Line

HEIGHT, STEP = 120, 10


@dataclass(frozen=True, slots=True)
class Column:
    """A day in a chart, with its position and height in drawing units."""

    day: str
    hours: float
    x: int
    y: float
    height: float


def columns_of(days: Sequence[Line], slot: str) -> list[Column]:
    """Return a column for each day. The highest column has the full height of the drawing."""
    most = max((day.hours.get(slot, 0.0) for day in days), default=0.0) or 1.0
    columns = []
    for number, day in enumerate(days):
        hours = day.hours.get(slot, 0.0)
        height = round(HEIGHT * hours / most, 1)
        columns.append(Column(day.name, round(hours, 2), number * STEP, HEIGHT - height, height))
    return columns


def usual_slot(slots: Sequence[str]) -> str:
    """Return the default slot of a chart: GPUs if there are any, else ``cpu``."""
    return next((one for one in slots if "cuda" in one), "cpu")
