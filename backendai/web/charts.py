"""Bars by day, as the pages draw them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from backendai.usage.statistics import Line

HEIGHT, STEP = 120, 10


@dataclass(frozen=True, slots=True)
class Column:
    """One day of a chart, in the units of the drawing."""

    day: str
    hours: float
    x: int
    y: float
    height: float


def columns_of(days: Sequence[Line], slot: str) -> list[Column]:
    """Return a column for each day; the highest is as high as the drawing."""
    most = max((day.hours.get(slot, 0.0) for day in days), default=0.0) or 1.0
    columns = []
    for number, day in enumerate(days):
        hours = day.hours.get(slot, 0.0)
        height = round(HEIGHT * hours / most, 1)
        columns.append(Column(day.name, round(hours, 2), number * STEP, HEIGHT - height, height))
    return columns


def usual_slot(slots: Sequence[str]) -> str:
    """Return the slot that a chart shows when nobody has chosen one: GPUs where there are any."""
    return next((one for one in slots if "cuda" in one), "cpu")
