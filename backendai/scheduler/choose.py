"""Selects the best agent for a request.

Agents are compared in this order: agents that the session should avoid come last; then the fewest kinds of accelerators
left unused; then the placement preference of the launch; then the selection strategy; then the name.

Agents with the same architecture and kinds of free accelerators form a bucket, which the selection strategy sorts.
Parts of a bucket without enough room for the request are skipped.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple
from uuid import UUID

from backendai.scheduler.capacity.agent_state import NO_SHARES, AgentState
from backendai.scheduler.capacity.agent_states import AgentStates
from backendai.scheduler.capacity.buckets import BLOCK, Bucket
from backendai.scheduler.capacity.devices import Shares
from backendai.scheduler.demand import Request
from backendai.scheduler.launches import Affinity
from backendai.scheduler.plan import new_tuple
from backendai.scheduler.selection import Entry
from backendai.scheduler.snapshot import SessionView

_Found = tuple[AgentState, Sequence[Shares], int]  # agent, devices, number of better ranked agents passed over

_FEW = 64  # up to this number, agents are checked one by one


class Allocation(NamedTuple):
    """The agent chosen for a request, and the devices for each of its kernels (``shares``). ``passed_over``: the number
    of better ranked agents without room."""

    request: Request
    state: AgentState
    passed_over: int
    shares: Sequence[Shares] = NO_SHARES


def best(request: Request, session: SessionView, states: AgentStates) -> Allocation | None:
    """Return an ``Allocation`` on the best agent that can hold the request; None if no agent can. Reserves nothing."""
    cost = states.cost(request) if request.cost is None else request.cost
    if cost < 0:
        return None
    avoid = session.avoid_agents
    affinity = states.launches.affinity(session) if session.placement else None
    few = _few(request, states) if request.designated or request.node_images or request.storage else None
    if few is not None:
        wanted = [state for state in few if state.id not in avoid]
        avoided = [state for state in few if state.id in avoid]
        return _best_of(wanted, request, states, affinity) or _best_of(avoided, request, states, affinity)
    ahead = 0
    for level in states.buckets.levels(request):
        if affinity is not None:
            found = _most_liked(level, request, cost, states, avoid, affinity)
        elif len(level) == 1 and not states.takes_turns:
            found = _first_from(bisect_left(level[0].entries, request.start), level[0], request, cost, states, avoid)
        else:
            found = _first_of_several(level, request, cost, states, avoid)
        if found is not None:
            state, shares, place = found
            return new_tuple(Allocation, (request, state, ahead + place, shares))
        for bucket in level:
            ahead += len(bucket.states)
    return _best_of([state for state in states.all if state.id in avoid], request, states, affinity) if avoid else None


def with_amounts(request: Request, states: AgentStates) -> Iterator[AgentState]:
    """Yield the agents that have enough amounts, kernels, images and folders for the request. Devices are not
    checked."""
    cost = states.cost(request)
    if cost < 0:
        return
    for level in states.buckets.levels(request):
        for bucket in level:
            for state in _with_slots(bucket, cost, states):
                if _has_what_it_needs(state, request) and state.has_kernels_left(request.kernels):
                    yield state


def _first_from(
    place: int, bucket: Bucket, request: Request, cost: int, states: AgentStates, avoid: frozenset[UUID]
) -> _Found | None:
    nodes, bounds, guards = bucket.states, bucket.bounds, states.packing.guards
    kernels, images, count = request.kernels, request.node_images, len(bucket.states)
    storage, joins = request.storage, request.joins
    while place < count:
        block = place // BLOCK
        end = (block + 1) * BLOCK
        if end > count:
            end = count
        if (bounds[block] | guards) - cost & guards == guards:  # as in ``Packing.has_room``
            for at in range(place, end):  # most often the first fits; a slice would copy all
                state = nodes[at]
                if (
                    (state.packed | guards) - cost & guards == guards
                    and (state.max_kernels is None or state.kernels + kernels <= state.max_kernels)
                    and (not images or images <= state.images)
                    and (storage is None or storage.features <= state.storage)
                    and (not avoid or state.id not in avoid)
                    and (not joins or state.joins)
                ):
                    shares = NO_SHARES if state.book is None else state.shares_for(request)
                    if shares is not None:
                        bucket.last_found = at
                        return state, shares, at
            bucket.count_failed_search(block)
        place = end
    return None


def _with_slots(bucket: Bucket, cost: int, states: AgentStates) -> Iterator[AgentState]:
    """Yield the agents of a bucket with enough amounts, in the bucket's order."""
    has_room = states.packing.has_room
    for block, bound in enumerate(bucket.bounds):
        if has_room(bound, cost):
            for state in bucket.states[block * BLOCK : (block + 1) * BLOCK]:
                if has_room(state.packed, cost):
                    yield state


def _first_of_several(
    level: list[Bucket], request: Request, cost: int, states: AgentStates, avoid: frozenset[UUID]
) -> _Found | None:
    """Return the first agent in these buckets that can hold the request; None if none can. Round-robin begins at the
    agent whose turn is next."""
    ranking, found = states.ranking, []
    for bucket in level:
        start = bisect_left(bucket.entries, ranking.start(cost))
        first = _first_from(start, bucket, request, cost, states, avoid)
        if first is None and start and states.takes_turns:
            first = _first_from(0, bucket, request, cost, states, avoid)
        if first is not None:
            found.append(first)
    if not found:
        return None
    state, shares, _ = min(found, key=lambda first: ranking.rank(first[0].entry))
    return state, shares, sum([ranking.ahead(bucket.entries, state.entry) for bucket in level])


def _most_liked(
    level: list[Bucket], request: Request, cost: int, states: AgentStates, avoid: frozenset[UUID], affinity: Affinity
) -> _Found | None:
    """Return the agent in these buckets that suits the launch's placement preference best. Only agents that can hold
    the request count; None if there is none."""

    def may_take(state: AgentState) -> bool:
        return states.packing.has_room(state.packed, cost) and state.id not in avoid

    if affinity.companions and not affinity.spreads:
        companions = [states.all[order] for order in affinity.companions]
        beside = [state for state in companions if state.bucket in level and may_take(state)]
        chosen = _best_of(beside, request, states, affinity)
        if chosen is not None:
            return chosen.state, chosen.shares, 0
    ranking = states.ranking
    ranked = [state for bucket in level for state in _with_slots(bucket, cost, states)]
    if len(level) > 1 or states.takes_turns:
        ranked.sort(key=lambda state: ranking.rank(state.entry))
    likings = affinity.of_all(ranked)
    for liking in sorted(set(likings)):
        for state, its_liking in zip(ranked, likings, strict=True):
            if its_liking == liking and may_take(state):
                shares = _shares(state, request)
                if shares is not None:
                    return state, shares, 0
    return None


def _few(request: Request, states: AgentStates) -> list[AgentState] | None:
    """Return the agents to check one by one; None if the buckets must be searched.

    If agents are designated, these are returned. Else the agents that have the required images or mount the required
    folders, if they are at most ``_FEW``.
    """
    if request.designated:
        return [states.by_id[each] for each in request.designated if each in states.by_id]
    if request.node_images:
        having = states.having_images(request.node_images)
        return having if len(having) <= _FEW else None
    if request.storage:
        mounting = states.mounting(request.storage.features)
        return mounting if len(mounting) <= _FEW else None
    return None


def _best_of(
    candidates: Iterable[AgentState], request: Request, states: AgentStates, affinity: Affinity | None
) -> Allocation | None:
    """Return an ``Allocation`` on the best of these agents that can hold the request, else None. Checks each agent."""

    def key(state: AgentState) -> tuple[int, int, Entry]:
        liking = affinity.of(state) if affinity else 0
        return len(state.bucket.kinds - request.kinds), liking, states.ranking.rank(state.entry)

    is_open = [
        state
        for state in candidates
        if state.bucket is not None and request.architecture in ("", state.architecture)
    ]  # fmt: skip
    for ahead, state in enumerate(sorted(is_open, key=key)):
        shares = _shares(state, request) if state.fits(request) else None
        if shares is not None:
            return Allocation(request, state, ahead, shares)
    return None


def _shares(state: AgentState, request: Request) -> Sequence[Shares] | None:
    """Return the devices for each kernel of a request; None if the agent cannot hold it. The caller has checked the
    amounts."""
    can_take = _has_what_it_needs(state, request) and state.has_kernels_left(request.kernels)
    return state.shares_for(request) if can_take else None


def _has_what_it_needs(state: AgentState, request: Request) -> bool:
    if request.node_images and not request.node_images <= state.images:
        return False
    if request.joins and not state.joins:
        return False
    return request.storage is None or request.storage.features <= state.storage
