"""Selects the best agent for a request.

In this order: agents that the session need not avoid; agents on which the fewest kinds of accelerators would stay idle;
agents that the launch prefers; the order of the selection strategy; the name. Of each shelf only the part is searched
in which the request could fit.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple
from uuid import UUID

from backendai.scheduler.demand import Request
from backendai.scheduler.devices import Shares
from backendai.scheduler.launches import Taste
from backendai.scheduler.plan import new_tuple
from backendai.scheduler.room import NO_SHARES, Room
from backendai.scheduler.rooms import Rooms
from backendai.scheduler.selection import Entry
from backendai.scheduler.shelf import STRETCH, Shelf
from backendai.scheduler.snapshot import SessionView

_Found = tuple[Room, Sequence[Shares], int]  # the agent, the devices, how many better ranked ones were passed over

_FEW = 64  # up to this number, agents are checked one by one


class Seat(NamedTuple):
    """A request with its agent, and the devices of each kernel. ``passed_over``: the number of better ranked agents
    without room."""

    request: Request
    room: Room
    passed_over: int
    shares: Sequence[Shares] = NO_SHARES


def best(request: Request, session: SessionView, rooms: Rooms) -> Seat | None:
    """Return the request's seat on the best agent that can hold it, or None. Books nothing."""
    cost = rooms.cost(request) if request.cost is None else request.cost
    if cost < 0:
        return None
    avoid = session.avoid_agents
    taste = rooms.launches.taste(session) if session.placement else None
    few = _few(request, rooms) if request.designated or request.node_images or request.storage else None
    if few is not None:
        wanted = [room for room in few if room.id not in avoid]
        avoided = [room for room in few if room.id in avoid]
        return _best_of(wanted, request, rooms, taste) or _best_of(avoided, request, rooms, taste)
    ahead = 0
    for level in rooms.shelves.levels(request):
        if taste is not None:
            found = _most_liked(level, request, cost, rooms, avoid, taste)
        elif len(level) == 1 and not rooms.takes_turns:
            found = _first_from(bisect_left(level[0].entries, request.start), level[0], request, cost, rooms, avoid)
        else:
            found = _first_of_several(level, request, cost, rooms, avoid)
        if found is not None:
            room, shares, place = found
            return new_tuple(Seat, (request, room, ahead + place, shares))
        for shelf in level:
            ahead += len(shelf.rooms)
    return _best_of([room for room in rooms.all if room.id in avoid], request, rooms, taste) if avoid else None


def with_amounts(request: Request, rooms: Rooms) -> Iterator[Room]:
    """Yield the agents with enough amounts, kernels, images and folders for the request; devices are not checked."""
    cost = rooms.cost(request)
    if cost < 0:
        return
    for level in rooms.shelves.levels(request):
        for shelf in level:
            for room in _with_slots(shelf, cost, rooms):
                if _has_what_it_needs(room, request) and room.has_kernels_left(request.kernels):
                    yield room


def _first_from(
    place: int, shelf: Shelf, request: Request, cost: int, rooms: Rooms, avoid: frozenset[UUID]
) -> _Found | None:
    nodes, bounds, guards = shelf.rooms, shelf.bounds, rooms.packing.guards
    kernels, images, count = request.kernels, request.node_images, len(shelf.rooms)
    storage, joins = request.storage, request.joins
    while place < count:
        stretch = place // STRETCH
        end = (stretch + 1) * STRETCH
        if end > count:
            end = count
        if (bounds[stretch] | guards) - cost & guards == guards:  # as in ``Packing.has_room``
            for at in range(place, end):  # the first mostly fits, and a slice would copy all
                room = nodes[at]
                if (
                    (room.packed | guards) - cost & guards == guards
                    and (room.max_kernels is None or room.kernels + kernels <= room.max_kernels)
                    and (not images or images <= room.images)
                    and (storage is None or storage.features <= room.storage)
                    and (not avoid or room.id not in avoid)
                    and (not joins or room.joins)
                ):
                    shares = NO_SHARES if room.book is None else room.shares_for(request)
                    if shares is not None:
                        shelf.last_found = at
                        return room, shares, at
            shelf.looked_in_vain(stretch)
        place = end
    return None


def _with_slots(shelf: Shelf, cost: int, rooms: Rooms) -> Iterator[Room]:
    """Yield the agents of a shelf with enough amounts, in the shelf's order."""
    has_room = rooms.packing.has_room
    for stretch, bound in enumerate(shelf.bounds):
        if has_room(bound, cost):
            for room in shelf.rooms[stretch * STRETCH : (stretch + 1) * STRETCH]:
                if has_room(room.packed, cost):
                    yield room


def _first_of_several(
    level: list[Shelf], request: Request, cost: int, rooms: Rooms, avoid: frozenset[UUID]
) -> _Found | None:
    """Return the first agent on these shelves that can hold the request; round-robin starts at the next agent's
    turn."""
    ranking, found = rooms.ranking, []
    for shelf in level:
        start = bisect_left(shelf.entries, ranking.start(cost))
        first = _first_from(start, shelf, request, cost, rooms, avoid)
        if first is None and start and rooms.takes_turns:
            first = _first_from(0, shelf, request, cost, rooms, avoid)
        if first is not None:
            found.append(first)
    if not found:
        return None
    room, shares, _ = min(found, key=lambda first: ranking.rank(first[0].entry))
    return room, shares, sum([ranking.ahead(shelf.entries, room.entry) for shelf in level])


def _most_liked(
    level: list[Shelf], request: Request, cost: int, rooms: Rooms, avoid: frozenset[UUID], taste: Taste
) -> _Found | None:
    """Return the agent on these shelves that the launch prefers most and that has room."""

    def may_take(room: Room) -> bool:
        return rooms.packing.has_room(room.packed, cost) and room.id not in avoid

    if taste.companions and not taste.spreads:
        companions = [rooms.all[order] for order in taste.companions]
        beside = [room for room in companions if room.shelf in level and may_take(room)]
        chosen = _best_of(beside, request, rooms, taste)
        if chosen is not None:
            return chosen.room, chosen.shares, 0
    ranking = rooms.ranking
    ranked = [room for shelf in level for room in _with_slots(shelf, cost, rooms)]
    if len(level) > 1 or rooms.takes_turns:
        ranked.sort(key=lambda room: ranking.rank(room.entry))
    likings = taste.of_all(ranked)
    for liking in sorted(set(likings)):
        for room, its_liking in zip(ranked, likings, strict=True):
            if its_liking == liking and may_take(room):
                shares = _shares(room, request)
                if shares is not None:
                    return room, shares, 0
    return None


def _few(request: Request, rooms: Rooms) -> list[Room] | None:
    """Return the candidate agents if these are known to be few, as with designated agents; else None."""
    if request.designated:
        return [rooms.by_id[each] for each in request.designated if each in rooms.by_id]
    if request.node_images:
        having = rooms.having_images(request.node_images)
        return having if len(having) <= _FEW else None
    if request.storage:
        mounting = rooms.mounting(request.storage.features)
        return mounting if len(mounting) <= _FEW else None
    return None


def _best_of(candidates: Iterable[Room], request: Request, rooms: Rooms, taste: Taste | None) -> Seat | None:
    """Return the request's seat on the best of these agents, or None. Checks each agent."""

    def key(room: Room) -> tuple[int, int, Entry]:
        liking = taste.of(room) if taste else 0
        return len(room.shelf.kinds - request.kinds), liking, rooms.ranking.rank(room.entry)

    is_open = [
        room
        for room in candidates
        if room.shelf is not None and request.architecture in ("", room.architecture)
    ]  # fmt: skip
    for ahead, room in enumerate(sorted(is_open, key=key)):
        shares = _shares(room, request) if room.fits(request) else None
        if shares is not None:
            return Seat(request, room, ahead, shares)
    return None


def _shares(room: Room, request: Request) -> Sequence[Shares] | None:
    """Return the devices for a request, or None if the agent cannot hold it; its amounts are checked already."""
    can_take = _has_what_it_needs(room, request) and room.has_kernels_left(request.kernels)
    return room.shares_for(request) if can_take else None


def _has_what_it_needs(room: Room, request: Request) -> bool:
    if request.node_images and not request.node_images <= room.images:
        return False
    if request.joins and not room.joins:
        return False
    return request.storage is None or request.storage.features <= room.storage
