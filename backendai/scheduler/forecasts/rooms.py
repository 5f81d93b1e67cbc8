"""When a session that is not launched yet could start: the largest free amounts of one agent, at moments to come."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from typing import NamedTuple
from uuid import UUID

from backendai.base.core.slots import Slots
from backendai.scheduler.explaining.suggest import rounded
from backendai.scheduler.snapshot import AgentView

MOST_ROOMS = 8  # of a moment; smaller ones are left out
_LEAST_SHARE = 2  # a smaller request keeps at least half of each amount


class Room(NamedTuple):
    """What one agent has free."""

    architecture: str
    free: Slots


class Moment(NamedTuple):
    """What agents have free from this time on, when the pending sessions that fit have started."""

    at: datetime
    rooms: tuple[Room, ...]


class Request(NamedTuple):
    """What one agent must have free. ``least``: below this no smaller request goes."""

    slots: Slots
    architecture: str
    least: Slots


def rooms_of(agents: Iterable[AgentView], known: dict[UUID, tuple[AgentView, Room]]) -> tuple[Room, ...]:
    """Return the largest free amounts of agents that take sessions; what fits into another room is left out. ``known``:
    the rooms of the last call, of which those of changed agents are replaced."""
    free = set()
    for each in agents:
        if each.id not in known or known[each.id][0] is not each:
            known[each.id] = each, Room(each.architecture, each.free)
        if each.alive and each.schedulable and (each.max_kernels is None or each.kernels < each.max_kernels):
            free.add(known[each.id][1])
    most: dict[str, int] = {}
    for room in free:
        for name, amount in room.free.items():
            most[name] = max(most.get(name, 1), amount)
    found: list[Room] = []
    size = {room: sum(amount / most[name] for name, amount in room.free.items()) for room in free}
    for room in sorted(free, key=lambda each: (-size[each], each.architecture, tuple(each.free.items()))):
        if not any(room.architecture == other.architecture and room.free.fits(other.free) for other in found):
            found.append(room)
            if len(found) == MOST_ROOMS:
                break
    return tuple(found)


def first_fit(moments: Sequence[Moment], request: Request, now: datetime, after: datetime) -> datetime | None:
    """Return the first time from ``after`` on at which the request fits; None if none is known. What is free ``now``
    does not count, as a pass has found it too small."""
    for at, rooms in _from(moments, now, after):
        if any(_suits(room, request) and request.slots.fits(room.free) for room in rooms):
            return at
    return None


def smaller_fit(
    moments: Sequence[Moment], request: Request, now: datetime, after: datetime, before: datetime
) -> tuple[datetime, Slots] | None:
    """Return a smaller request that fits ``before``, with its time; None if there is none. Each amount stays at least
    half."""
    for at, rooms in _from(moments, now, after):
        if at >= before:
            return None
        cuts = [rounded(request.slots, room.free) for room in rooms if _suits(room, request)]
        fitting = [cut for cut in cuts if _is_enough(cut, request)]
        if fitting:
            return at, max(fitting, key=lambda cut: sum(cut[name] / wanted for name, wanted in request.slots.items()))
    return None


def _from(moments: Sequence[Moment], now: datetime, after: datetime) -> Iterator[tuple[datetime, tuple[Room, ...]]]:
    for place, moment in enumerate(moments):
        is_over = place + 1 < len(moments) and moments[place + 1].at <= after
        if moment.at > now and not is_over:
            yield max(moment.at, after), moment.rooms


def _is_enough(cut: Slots, request: Request) -> bool:
    wanted, least = request.slots, request.least
    return all(cut[name] >= max(amount // _LEAST_SHARE, least[name], 1) for name, amount in wanted.items())


def _suits(room: Room, request: Request) -> bool:
    return request.architecture in ("", room.architecture)
