"""Foresees when pending sessions start, and what is free at moments to come.

Each look ahead jumps to the next expected end, or a little further the later it is, as a forecast of tomorrow need not
know minutes. So the number of passes grows with the logarithm of the time ahead, not with the number of sessions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from uuid import UUID

from backendai.scheduler.forecasts.rooms import Moment, Room, rooms_of
from backendai.scheduler.forecasts.world import Occupant, World
from backendai.scheduler.snapshot import AgentView, Snapshot

_LEAST_JUMP, _GROWTH = timedelta(seconds=5), 0.04
_GROWTH_WHEN_EMPTY = 0.1  # nobody waits any more: only what becomes free is of interest
MOST_PASSES, HORIZON = 60, timedelta(days=14)


@dataclass(frozen=True, slots=True)
class Foreseen:
    """The expected starts of pending sessions, by id. ``endless``: how many placed sessions have no known end.
    ``was_cut``: the look ahead stopped before all had started, or ended. ``moments``: what is free, if requested."""

    starts: Mapping[UUID, datetime]
    endless: int
    was_cut: bool
    moments: tuple[Moment, ...] = ()


def foresee_starts(
    snapshot: Snapshot,
    occupants: Iterable[Occupant],
    length_of: Callable[[UUID], timedelta | None],
    *,
    with_moments: bool = False,
) -> Foreseen:
    """Return when each pending session starts if sessions end as expected. ``length_of``: the expected length of a
    pending session, by its id. ``with_moments``: also what is free then and later. At most ``MOST_PASSES`` passes over
    the snapshot, and as many looks at what is free after that."""
    world, moments, was_cut = World(snapshot, occupants, length_of), list[Moment](), True
    known: dict[UUID, tuple[AgentView, Room]] = {}
    for turn in range(2 * MOST_PASSES if with_moments else MOST_PASSES):
        if world.pending and turn == MOST_PASSES:
            break  # what is free from here on would be taken by those that still wait
        if world.pending:
            world.decide()
        if with_moments:
            rooms = rooms_of(world.agents, known)
            if not moments or moments[-1].rooms != rooms:
                moments.append(Moment(world.now, rooms))
        following = world.next_moment() if world.pending or with_moments else None
        if following is None or following > snapshot.now + HORIZON:
            was_cut = following is not None
            break
        growth = _GROWTH if world.pending else _GROWTH_WHEN_EMPTY
        world.go_on(max(following, world.now + max(_LEAST_JUMP, (world.now - snapshot.now) * growth)))
    return Foreseen(world.starts, world.endless, was_cut, tuple(moments))
