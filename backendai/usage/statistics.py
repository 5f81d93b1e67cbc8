"""Sums of held and used amounts over days, computed by the database without a row for each session."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date, timedelta

from django.db.models import QuerySet, Sum

from backendai.accounts.models import User
from backendai.core.errors import UserError
from backendai.core.messages import Message
from backendai.core.slots import is_size
from backendai.usage.models import UsageBucket

LONGEST = 366
USUAL_DAYS = 30
_HOUR, _GIB = 3600, 2**30
GROUPINGS: Mapping[str, str] = {
    "user": "user__email",
    "project": "project__name",
    "domain": "domain__name",
    "resource-group": "resource_group__name",
    "day": "day",
}


@dataclass(frozen=True, slots=True)
class Line:
    """What one user, project, domain, group or day held: hours by slot, of sizes GiB-hours. ``used`` is what programs
    really used of it, ``measured`` what was held while that was measured; both without slots that nobody measured."""

    name: str
    hours: Mapping[str, float]
    used: Mapping[str, float] = field(default_factory=dict)
    measured: Mapping[str, float] = field(default_factory=dict)

    def used_part(self, slot: str) -> float | None:
        """Return which part of what was held was used, 0 to 1, as far as it was measured."""
        measured = self.measured.get(slot, 0.0)
        return min(self.used.get(slot, 0.0) / measured, 1.0) if measured else None


@dataclass(frozen=True, slots=True)
class Statistics:
    """What was held from ``first`` to ``last`` (days in UTC, both included). ``slots``: those that anybody held, cpu
    and mem first; ``days`` has a line for every day."""

    first: date
    last: date
    by: str
    slots: Sequence[str]
    lines: Sequence[Line]
    days: Sequence[Line]

    @property
    def total(self) -> Line:
        """The sum of all lines."""
        hours = {slot: sum(line.hours.get(slot, 0.0) for line in self.lines) for slot in self.slots}
        used = {slot: sum(line.used.get(slot, 0.0) for line in self.lines) for slot in self.measured_slots}
        measured = {slot: sum(line.measured.get(slot, 0.0) for line in self.lines) for slot in self.measured_slots}
        return Line("total", hours, used, measured)

    @property
    def measured_slots(self) -> list[str]:
        """The slots with measured use, in the same order."""
        measured = {slot for line in self.lines for slot in line.measured}
        return [slot for slot in self.slots if slot in measured]


def statistics(user: User, *, first: date | None = None, last: date, by: str = "user") -> Statistics:
    """Return what the user may see of these days, added up by a key of ``GROUPINGS``; two queries. Without ``first`` it
    is ``USUAL_DAYS`` days. Raises a UserError for days or a grouping that make no sense."""
    first = first or usual_first(last)
    if by not in GROUPINGS:
        raise UserError("Group by one of {groupings}.", groupings=GROUPINGS, field="by", code="invalid-grouping")
    if last < first:
        raise UserError(
            "The last day, {last}, is before the first, {first}.",
            last=last,
            first=first,
            field="last",
            code="invalid-range",
        )
    if (last - first).days >= LONGEST:
        raise UserError(
            "At most {longest} days at once.", longest=LONGEST, field="first", code="invalid-range", limit=LONGEST
        )
    buckets = UsageBucket.objects.visible_to(user).filter(day__gte=first, day__lte=last)
    found = _added_up(buckets, "day")
    every = [first + timedelta(days=number) for number in range((last - first).days + 1)]
    days = [found.get(str(day), Line(str(day), {})) for day in every]
    names = {slot for line in days for slot in line.hours}
    slots = sorted(names | {"cpu", "mem"}, key=lambda slot: (slot != "cpu", slot != "mem", slot))
    if by == "day":
        return Statistics(first, last, by, slots, days, days)
    lines = list(_added_up(buckets, GROUPINGS[by]).values())
    lines.sort(key=lambda line: ([-line.hours.get(slot, 0.0) for slot in reversed(slots)], line.name))
    return Statistics(first, last, by, slots, lines, days)


def usual_first(last: date) -> date:
    """Return the first day that goes with ``last`` when nobody names another: never before the calendar."""
    return date.fromordinal(max(last.toordinal() - USUAL_DAYS + 1, 1))


def unit_of(slot: str) -> str:
    """Return in what hours of a slot are counted: ``GiB-hours`` of sizes."""
    return Message("GiB-hours") if is_size(slot) else "hours"


def _added_up(buckets: QuerySet[UsageBucket], column: str) -> dict[str, Line]:
    lines: dict[str, tuple[dict[str, float], ...]] = defaultdict(lambda: ({}, {}, {}))
    sums = (Sum("amount_seconds"), Sum("used_seconds"), Sum("measured_seconds"))
    rows = buckets.order_by().values_list(column, "slot").annotate(held=sums[0], used=sums[1], measured=sums[2])
    for name, slot, held, used, measured in rows:
        unit = _HOUR * (_GIB if is_size(slot) else 1)
        hours = lines[str(name)]
        hours[0][slot] = held / unit
        if measured:
            hours[1][slot], hours[2][slot] = used / unit, measured / unit
    return {name: Line(name, *hours) for name, hours in lines.items()}
