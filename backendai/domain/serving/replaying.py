"""The load that an endpoint had, and what other numbers would have done with it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from itertools import pairwise

from backendai.domain.serving.measures import Reading, service_seconds, spans_of
from backendai.domain.serving.models import Endpoint, ProxyReading
from backendai.domain.serving.reading import read_endpoints
from backendai.scheduler.serving.replay import Minute, Replayed, replay
from backendai.scheduler.serving.snapshot import EndpointView

_DAY, _MINUTE = timedelta(days=1), timedelta(minutes=1)
_Key = tuple[str, str]


@dataclass(frozen=True, slots=True)
class Yesterday:
    """The last day, minute by minute, under other numbers. ``measured``: of the day. Hours are hours of replicas."""

    minutes: tuple[Replayed, ...]
    measured: timedelta
    replica_hours: float
    changes: int
    most: int
    at_limit: timedelta

    @property
    def minutes_at_limit(self) -> int:
        """For how many minutes the load asked for more than the maximum."""
        return round(self.at_limit / _MINUTE)


def replay_yesterday(endpoint: Endpoint, now: datetime, *, minimum: int, maximum: int, target: float) -> Yesterday:
    """Return what these numbers would have done with the load of the last day. Nine queries; reads one row for each
    minute and app proxy."""
    view = read_endpoints(now, [endpoint.pk]).views[endpoint.pk]
    tried = replace(view, minimum=minimum, maximum=maximum, target=target)
    return summed(tried, minutes_of(endpoint, now - _DAY, now))


def summed(tried: EndpointView, minutes: Sequence[Minute]) -> Yesterday:
    """Return the replay of these minutes with its sums."""
    found = tuple(replay(tried, minutes))
    busy = [one for one in found if one.desired == tried.maximum and one.load > tried.target * tried.maximum]
    return Yesterday(
        minutes=found,
        measured=_MINUTE * len(found),
        replica_hours=sum(one.desired for one in found) / 60,
        changes=sum(before.desired != after.desired for before, after in pairwise(found)),
        most=max((one.desired for one in found), default=0),
        at_limit=_MINUTE * len(busy),
    )


def minutes_of(endpoint: Endpoint, since: datetime, until: datetime) -> list[Minute]:
    """Return the load of the endpoint by minutes, without those in which nothing was measured. One query."""
    # What the first minute counts from comes before it.
    rows = ProxyReading.objects.filter(endpoint=endpoint, at__gte=since - _MINUTE, at__lte=until).order_by("at")
    buckets: defaultdict[int, list[Reading]] = defaultdict(list)
    for values in rows.values_list(*Reading._fields):
        reading = Reading(*values)
        buckets[(reading.at - since) // _MINUTE].append(reading)
    minutes, before = [], dict[_Key, Reading]()
    for number, found in sorted(buckets.items()):
        last = {(one.proxy, one.boot): one for one in found}
        readings = [*(before[key] for key in last if key in before), *found]
        if number >= 0:
            minutes.append(_minute(since + _MINUTE * (number + 1), readings, last))
        before |= last
    return minutes


def _minute(at: datetime, readings: Sequence[Reading], last: Mapping[_Key, Reading]) -> Minute:
    spans = [one for one in spans_of(readings, _MINUTE.total_seconds()) if one.seconds > 0]
    service = service_seconds(spans)
    busy = sum(one.busy_seconds / one.seconds for one in spans)
    arrivals = sum(one.requests / one.seconds for one in spans)
    queued = sum(one.queued for one in last.values())
    return Minute(
        at=at,
        load=max(busy, arrivals * service),
        backlog=queued * service / 60,
        requests=sum(one.requests for one in spans),
        queued=queued,
    )
