"""Durations as text, in both directions; and the lengths and times that people may write."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta

# Added to each other, and shown in any zone, they stay within the calendar, which ends at 9999.
LONGEST = timedelta(days=36525)
EARLIEST, LATEST = datetime(1970, 1, 1, tzinfo=UTC), datetime(3000, 1, 1, tzinfo=UTC)
_WRITTEN = re.compile(r"(\d{1,9})(s|m|h|d)?", re.ASCII)
_SECONDS = {"": 1, "s": 1, "m": 60, "h": 3600, "d": 86400}
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


def seconds_in(written: object) -> int | None:
    """Return the seconds of ``90``, ``90s``, ``15m``, ``2h`` or ``1d``; None for anything else."""
    found = _WRITTEN.fullmatch(str(written).strip()) if not isinstance(written, bool) else None
    return int(found[1]) * _SECONDS[found[2] or ""] if found else None
