"""A resource group on a clock that jumps: the scheduler itself decides, and sessions end as expected.

Forecasts look ahead in such a world; a replay runs the past through one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from heapq import heappop, heappush
from itertools import count
from uuid import UUID

from backendai.base.core.slots import Slots
from backendai.scheduler.decide import decide
from backendai.scheduler.plan import DeviceShares, Placement
from backendai.scheduler.snapshot import (
    AgentView,
    DependencyState,
    DeviceView,
    Holder,
    RunningView,
    SessionView,
    Snapshot,
)


@dataclass(frozen=True, slots=True)
class Held:
    """What one kernel holds on its agent."""

    agent: UUID
    amounts: Slots
    devices: DeviceShares = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Occupant:
    """A placed session: what its kernels hold, to whom it counts, and its expected end (None: unknown)."""

    id: UUID
    held: tuple[Held, ...]
    holder: Holder
    ends_at: datetime | None
    latest_end: datetime | None = None


class World:
    """The resource group at a time to come, with its ``pending`` sessions and the ``starts`` of those that started.

    ``length_of``: the expected length of a pending session, by its id. ``endless``: how many placed sessions have no
    known end.
    """

    def __init__(
        self, snapshot: Snapshot, occupants: Iterable[Occupant], length_of: Callable[[UUID], timedelta | None]
    ) -> None:
        self._snapshot, self._length_of = snapshot, length_of
        self.now = snapshot.now
        self.pending: list[SessionView] = []
        self._awaited, self._times = set[UUID](), set[datetime]()
        self.starts: dict[UUID, datetime] = {}
        self.endless = 0
        self._agents = {agent.id: agent for agent in snapshot.agents}
        self._limits, self._shares = dict(snapshot.limits), dict(snapshot.held)
        self._ends: list[tuple[datetime, int, Occupant]] = []
        self._placed: dict[UUID, Occupant] = {}
        self._order = count()
        for each in occupants:
            self._expect(each)
        for session in snapshot.pending:
            self.arrive(session)

    def decide(self, most: int | None = None) -> None:
        """Run one pass over the first ``most`` pending sessions (None: all), and move those that it places."""
        running = tuple(map(_running, self._placed.values())) if self._snapshot.rules.backfill else ()
        plan = decide(
            replace(
                self._snapshot,
                now=self.now,
                agents=self.agents,
                pending=tuple(self.pending[:most]),
                limits=self._limits,
                held=self._shares,
                running=running,
            ),
            explains=False,
        )
        placed = {each.session_id: each for each in plan.placements}
        hopeless = {wait.session_id for wait in plan.waits if wait.reason.never}
        if not placed and not hopeless:
            return
        for session in [each for each in self.pending[:most] if each.id in placed]:
            self._start(session, placed[session.id])
        left = [each for each in self.pending[:most] if each.id not in placed and each.id not in hopeless]
        self.pending[:most] = left

    @property
    def agents(self) -> tuple[AgentView, ...]:
        """The agents with what sessions hold now."""
        return tuple(self._agents.values())

    @property
    def shares(self) -> Mapping[str, Slots]:
        """What each user's sessions hold now."""
        return self._shares

    @property
    def placed(self) -> tuple[Occupant, ...]:
        """The sessions that hold something now."""
        return tuple(self._placed.values())

    def arrive(self, session: SessionView) -> None:
        """Add a pending session."""
        self.pending.append(session)
        self._awaited.update(each.id for each in session.dependencies)
        if session.starts_at:
            self._times.add(session.starts_at)

    def next_moment(self) -> datetime | None:
        """Return when the next session ends, or may first start; None if nothing is expected."""
        moments = [self._ends[0][0]] if self._ends else []
        moments += [at for at in self._times if at > self.now]
        return min(moments, default=None)

    def go_on(self, to: datetime) -> bool:
        """Set the clock, and free what sessions hold that have ended by then; returns whether any has."""
        self.now, live = to, len(self._placed)
        while self._ends and self._ends[0][0] <= to:
            self._end(heappop(self._ends)[2])
        return len(self._placed) < live

    def _start(self, session: SessionView, placement: Placement) -> None:
        self.starts[session.id] = self.now
        amounts = {kernel.id: kernel.slots for kernel in session.kernels}
        held = tuple(
            Held(agent, amounts[kernel], placement.devices.get(kernel, {})) for kernel, agent in placement.kernel_agents
        )
        length, longest = self._length_of(session.id), session.longest_run
        known = [each for each in (length, longest) if each is not None]
        ends_at = self.now + min(known) if known else None
        latest = self.now + longest if longest else None
        occupant = Occupant(session.id, held, session.holder, ends_at, latest)
        self._count(occupant, 1)
        for each in held:
            self._agents[each.agent] = with_held(self._agents[each.agent], each, 1)
        self._expect(occupant)

    def _expect(self, occupant: Occupant) -> None:
        self._placed[occupant.id] = occupant
        if occupant.ends_at is None:
            self.endless += 1
        else:
            heappush(self._ends, (max(occupant.ends_at, self.now), next(self._order), occupant))

    def _end(self, occupant: Occupant) -> None:
        del self._placed[occupant.id]
        self._count(occupant, -1)
        for each in occupant.held:
            if each.agent in self._agents:
                self._agents[each.agent] = with_held(self._agents[each.agent], each, -1)
        if occupant.id in self._awaited:
            self.pending = [_after(occupant.id, session) for session in self.pending]

    def _count(self, occupant: Occupant, sign: int) -> None:
        """Count the session to the limits and shares of its holders, or no longer."""
        total = sum((each.amounts for each in occupant.held), Slots()) * sign
        for key in occupant.holder.keys:
            if limit := self._limits.get(key):
                self._limits[key] = replace(limit, used=limit.used + total, sessions=limit.sessions + sign)
        if occupant.holder.user in self._shares or (sign > 0 and occupant.holder.user):
            self._shares[occupant.holder.user] = self._shares.get(occupant.holder.user, Slots()) + total


def _running(occupant: Occupant) -> RunningView:
    held = tuple((each.agent, each.amounts, 1) for each in occupant.held)
    return RunningView(occupant.id, held, occupant.latest_end)


def with_held(agent: AgentView, held: Held, sign: int) -> AgentView:
    """Return the agent with what a kernel holds added (1) or taken away (-1)."""
    return replace(
        agent,
        occupied=agent.occupied + held.amounts * sign,
        kernels=agent.kernels + sign,
        devices=_devices(agent.devices, held.devices, sign) if held.devices else agent.devices,
    )


def _devices(devices: Sequence[DeviceView], shares: DeviceShares, sign: int) -> tuple[DeviceView, ...]:
    return tuple(
        replace(each, taken=max(0, each.taken + sign * shares.get(each.slot, {}).get(each.id, 0))) for each in devices
    )


def _after(ended: UUID, session: SessionView) -> SessionView:
    """Return the session with this dependency met, if it is one. Sessions are expected to end as required."""
    if not any(each.id == ended for each in session.dependencies):
        return session
    met = [
        replace(each, state=DependencyState.SUCCEEDED) if each.id == ended else each for each in session.dependencies
    ]
    return session._replace(dependencies=tuple(met))
