"""What was held over some days, added up by the database: never a row for each session."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date, timedelta

from django.db.models import QuerySet, Sum

from backendai.accounts.models import User
from backendai.core.errors import UserError
from backendai.core.slots import is_size
from backendai.usage.models import UsageBucket

LONGEST = 366
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
    """What one user, project, domain, group or day held: hours by slot, of sizes GiB-hours."""

    name: str
    hours: Mapping[str, float]


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
        """Everything together."""
        return Line("total", {slot: sum(line.hours.get(slot, 0.0) for line in self.lines) for slot in self.slots})


def statistics(user: User, *, first: date, last: date, by: str = "user") -> Statistics:
    """Return what the user may see of these days, added up by a key of ``GROUPINGS``; two queries. Raises a UserError
    for days or a grouping that make no sense."""
    if by not in GROUPINGS:
        raise UserError(f"Group by one of {', '.join(GROUPINGS)}.", field="by", code="invalid-grouping")
    if last < first:
        raise UserError(f"The last day, {last}, is before the first, {first}.", field="last", code="invalid-range")
    if (last - first).days >= LONGEST:
        raise UserError(f"At most {LONGEST} days at once.", field="first", code="invalid-range", limit=LONGEST)
    buckets = UsageBucket.objects.visible_to(user).filter(day__gte=first, day__lte=last)
    found = _added_up(buckets, "day")
    every = [first + timedelta(days=number) for number in range((last - first).days + 1)]
    days = [Line(str(day), found.get(str(day), {})) for day in every]
    names = {slot for line in days for slot in line.hours}
    slots = sorted(names | {"cpu", "mem"}, key=lambda slot: (slot != "cpu", slot != "mem", slot))
    if by == "day":
        return Statistics(first, last, by, slots, days, days)
    lines = [Line(name, hours) for name, hours in _added_up(buckets, GROUPINGS[by]).items()]
    lines.sort(key=lambda line: ([-line.hours.get(slot, 0.0) for slot in reversed(slots)], line.name))
    return Statistics(first, last, by, slots, lines, days)


def unit_of(slot: str) -> str:
    """Return in what hours of a slot are counted: ``GiB-hours`` of sizes."""
    return "GiB-hours" if is_size(slot) else "hours"


def _added_up(buckets: QuerySet[UsageBucket], column: str) -> dict[str, dict[str, float]]:
    hours: dict[str, dict[str, float]] = defaultdict(dict)
    rows = buckets.order_by().values_list(column, "slot").annotate(total=Sum("amount_seconds"))
    for name, slot, total in rows:
        hours[str(name)][slot] = total / _HOUR / (_GIB if is_size(slot) else 1)
    return dict(hours)
