"""Sums of allocated and used amounts over days, computed by the database."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date, timedelta

from django.db.models import QuerySet, Sum

from backendai.base.core.errors import UserError
from backendai.base.core.messages import Message
from backendai.base.core.slots import is_size
from backendai.domain.accounts.models import User
from backendai.domain.usage.models import UsageBucket

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
    """The allocation of one user, project, domain, group or day: hours by slot, for sizes GiB-hours.

    ``used`` is the measured usage, ``measured`` the allocation while it was measured. Both lack slots without
    measurements.
    """

    name: str
    hours: Mapping[str, float]
    used: Mapping[str, float] = field(default_factory=dict)
    measured: Mapping[str, float] = field(default_factory=dict)

    def used_part(self, slot: str) -> float | None:
        """Return the used share of the measured allocation, 0 to 1; None without measurements."""
        measured = self.measured.get(slot, 0.0)
        return min(self.used.get(slot, 0.0) / measured, 1.0) if measured else None


@dataclass(frozen=True, slots=True)
class Statistics:
    """The allocations from ``first`` to ``last`` (days in UTC, both included).

    ``slots``: the allocated slots, cpu and mem first; ``days`` has a line for every day.
    """

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
        """The slots with measured usage, in the order of ``slots``."""
        measured = {slot for line in self.lines for slot in line.measured}
        return [slot for slot in self.slots if slot in measured]


def statistics(
    user: User, *, first: date | None = None, last: date, by: str = "user", is_personal: bool = False
) -> Statistics:
    """Return the allocations of these days that the user may see, grouped by a key of ``GROUPINGS``.

    ``is_personal`` leaves out those that the user sees only as administrator of a domain or the platform. Two
    queries. Without ``first`` it covers ``USUAL_DAYS`` days. Raises UserError for invalid days or an unknown grouping.
    """
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
    seen = UsageBucket.objects.concerning(user) if is_personal else UsageBucket.objects.visible_to(user)
    buckets = seen.filter(day__gte=first, day__lte=last)
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
    """Return the default first day for ``last``, not before the first day of the calendar."""
    return date.fromordinal(max(last.toordinal() - USUAL_DAYS + 1, 1))


def unit_of(slot: str) -> str:
    """Return the unit of a slot's hours: ``GiB-hours`` for sizes, else ``hours``."""
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
