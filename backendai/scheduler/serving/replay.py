"""Replays a past load with changed settings of an endpoint. The decisions are the same as in the live pass."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from backendai.scheduler.serving.scale import decide_scale
from backendai.scheduler.serving.snapshot import DesiredState, EndpointView, LoadView

_PEAK = timedelta(minutes=5)


@dataclass(frozen=True, slots=True)
class Minute:
    """The load of one past minute. ``load``: the number of concurrent requests. ``backlog``: the number of concurrent
    requests that would empty the queue within a minute."""

    at: datetime
    load: float
    backlog: float = 0.0
    requests: int = 0
    queued: int = 0


@dataclass(frozen=True, slots=True)
class Replayed:
    """One minute of a replay: the number of replicas, and the code of the reason."""

    at: datetime
    load: float
    desired: int
    code: str


def replay(endpoint: EndpointView, minutes: Iterable[Minute]) -> Iterator[Replayed]:
    """Yield the decision of ``decide_scale`` for each minute, as if new replicas served at once.

    The replay starts with the minimum number of replicas. It misses jumps within a minute, as the live pass runs every
    two seconds. Scaling rules are left out, as their metrics depend on the number of replicas.
    """
    view = replace(endpoint, wish=DesiredState.RUN, desired=endpoint.minimum, replicas=(), rules=())
    view = replace(view, panic_until=None, scaled_at=None, asked_at=None)
    loads = deque[tuple[datetime, float]]()
    for one in minutes:
        loads.append((one.at, one.load + one.backlog))
        while loads[0][0] <= one.at - _PEAK:
            loads.popleft()
        view = replace(
            view,
            asked_at=one.at if one.requests else view.asked_at,
            load=_load_of(one, max(load for _, load in loads), sleeps=view.desired == 0),
        )
        scale = decide_scale(view, one.at)
        if scale.desired != view.desired:
            view = replace(view, desired=scale.desired, scaled_at=one.at)
        view = replace(view, panic_until=scale.panic_until)
        yield Replayed(one.at, one.load, scale.desired, scale.reason.code)


def _load_of(one: Minute, peak: float, *, sleeps: bool) -> LoadView:
    held = one.requests if sleeps else 0
    return LoadView(
        short=one.load,
        long=one.load,
        peak=peak,
        backlog=one.backlog,
        queued=one.queued,
        open=min(one.requests, 1),
        held=held,
    )
