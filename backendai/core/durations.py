"""Durations as text."""

from __future__ import annotations

from datetime import timedelta

_UNITS = ((86400, "d"), (3600, "h"), (60, "min"), (1, "s"))


def describe_duration(duration: timedelta) -> str:
    """Return a duration with its two largest units, rounded to seconds: ``1 h 5 min``, ``61 s``, ``0 s``."""
    seconds = max(0, round(duration.total_seconds()))
    if seconds < 120:
        return f"{seconds} s"
    place = next(place for place, (size, _) in enumerate(_UNITS) if seconds >= size)
    parts = []
    for size, unit in _UNITS[place : place + 2]:
        number, seconds = divmod(seconds, size)
        parts += [f"{number} {unit}"] if number else []
    return " ".join(parts)
