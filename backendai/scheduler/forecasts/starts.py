"""Foresees when pending sessions start.

Each look ahead jumps to the next expected end, or a little further the later it is, as a forecast of tomorrow need not
know minutes. So the number of passes grows with the logarithm of the time ahead, not with the number of sessions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from uuid import UUID

from backendai.scheduler.forecasts.world import Occupant, World
from backendai.scheduler.snapshot import Snapshot

_LEAST_JUMP, _GROWTH = timedelta(seconds=5), 0.04
MOST_PASSES, HORIZON = 60, timedelta(days=14)


@dataclass(frozen=True, slots=True)
class Foreseen:
    """The expected starts of pending sessions, by id. ``endless``: how many placed sessions have no known end.
    ``was_cut``: the look ahead stopped before all had started."""

    starts: Mapping[UUID, datetime]
    endless: int
    was_cut: bool


def foresee_starts(
    snapshot: Snapshot, occupants: Iterable[Occupant], length_of: Callable[[UUID], timedelta | None]
) -> Foreseen:
    """Return when each pending session starts if sessions end as expected. ``length_of``: the expected length of a
    pending session, by its id. At most ``MOST_PASSES`` passes over the snapshot."""
    world = World(snapshot, occupants, length_of)
    for _ in range(MOST_PASSES):
        world.decide()
        following = world.next_moment() if world.pending else None
        if following is None or following > snapshot.now + HORIZON:
            return Foreseen(world.starts, world.endless, was_cut=following is not None)
        world.go_on(max(following, world.now + max(_LEAST_JUMP, (world.now - snapshot.now) * _GROWTH)))
    return Foreseen(world.starts, world.endless, was_cut=bool(world.pending))
