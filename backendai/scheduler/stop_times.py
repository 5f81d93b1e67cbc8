"""Says when schedules stop and resume sessions. No Django, no I/O, no clock."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, time, timedelta
from enum import StrEnum
from zoneinfo import ZoneInfo

LATE = timedelta(hours=1)  # what is later than that waits for the next time
WARN_BEFORE = timedelta(minutes=10)
_SATURDAY = 5
_DAYS = 7  # covers a weekend on both sides


class Turn(StrEnum):
    """What a schedule does at a moment."""

    STOP = "stop"
    RESUME = "resume"


@dataclass(frozen=True, slots=True)
class DailyTimes:
    """The times of the day in a time zone; ``resume_at`` None: never. ``is_weekdays``: from Monday to Friday only."""

    stop_at: time
    resume_at: time | None
    is_weekdays: bool
    time_zone: str

    def due(self, now: datetime) -> tuple[datetime, Turn] | None:
        """Return the latest moment that has come, with its turn; None if it is more than ``LATE`` ago."""
        return max((one for one in self._moments(now) if now - LATE < one[0] <= now), default=None)

    def next(self, turn: Turn, now: datetime) -> datetime | None:
        """Return the next moment of this turn; None: never."""
        return min((at for at, its in self._moments(now) if its == turn and at > now), default=None)

    def _moments(self, now: datetime) -> list[tuple[datetime, Turn]]:
        """Return the moments of the days around now. One that the clock skips comes an hour later, and of one that it
        repeats the first counts."""
        zone = ZoneInfo(self.time_zone)
        today = now.astimezone(zone).date()
        return [
            (datetime.combine(day, at, zone).astimezone(UTC), turn)
            for day in (today + timedelta(days=number) for number in range(-1, _DAYS))
            if day.weekday() < _SATURDAY or not self.is_weekdays
            for turn, at in ((Turn.STOP, self.stop_at), (Turn.RESUME, self.resume_at))
            if at is not None
        ]
