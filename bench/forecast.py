"""Forecasts of starts in a simulated week: how often the range holds, and how far the expected start is off.

bin/bench forecast [--json] [--agents N] [--days N] [--only STRATEGY]

A fleet of agents with 8 GPUs each; people of different habits launch sessions whose lengths differ by habit. The
scheduler decides on a virtual clock. Each session that has to wait gets one forecast within a quarter of an hour of
its launch, from the lengths of sessions that had ended by then. ``factor``: the median error of forecasts that know
time limits only (as Slurm's do), beside that of these. The first day only teaches.
"""

from __future__ import annotations

import random
import statistics
from collections import deque
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple
from uuid import UUID

from backendai.base.core.slots import Slots
from backendai.scheduler.forecasts.lengths import length_at, with_length
from backendai.scheduler.forecasts.ranges import SCORED, StartRange, range_of, ratio_of, spread_of
from backendai.scheduler.forecasts.starts import foresee_starts
from backendai.scheduler.forecasts.world import Occupant, World
from backendai.scheduler.snapshot import AgentView, Holder, KernelView, Rules, SessionView, Snapshot
from bench._command import command, show

START = datetime(2026, 1, 5, tzinfo=UTC)
STRATEGIES = {
    "fifo": Rules(),
    "fair-share": Rules(sequence="fair-share"),
    "drf-backfill": Rules(sequence="drf", backfill=True),
}
LIMIT, EVERY = timedelta(hours=24), timedelta(minutes=15)
PEOPLE = 30


class Habit(NamedTuple):
    """What a person launches: GPUs, and the median and spread of the hours for which it runs."""

    gpus: int
    hours: float
    sigma: float


class Made(NamedTuple):
    """A forecast, and what time limits alone would have said."""

    at: datetime
    expected: datetime
    range: StartRange
    by_limits: datetime | None


def main() -> None:
    """Measure and print."""
    numbers = {"agents": (50, "agents with 8 GPUs"), "days": (7, "length of the simulation"), "seed": (1, "of chance")}
    parser = command("forecast", __doc__, numbers, parts=tuple(STRATEGIES))
    options = parser.parse_args()
    show(options, {name: Week(STRATEGIES[name], options).run() for name in options.only}, {"factor": 3})


class Week:
    """One simulated week under one strategy."""

    def __init__(self, rules: Rules, options: Any) -> None:
        self._chance = random.Random(options.seed)
        capacity = Slots.parse({"cpu": 128, "mem": "1t", "cuda.device": 8})
        agents = tuple(
            AgentView(UUID(int=number), f"agent-{number:03}", "x86_64", capacity, Slots())
            for number in range(options.agents)
        )
        self._end = START + timedelta(days=options.days)
        self._live = World(Snapshot(START, "bench", agents, (), rules, held={}), [], self._true_length)
        self._agents, self._rules = agents, rules
        self._habits = [self._habit() for _ in range(PEOPLE)]
        self._sessions: dict[UUID, tuple[SessionView, int, timedelta]] = {}
        self._counts: dict[str, list[float]] = {}
        self._made: dict[UUID, Made] = {}
        self._ratios: deque[float] = deque(maxlen=SCORED)
        self._inside: deque[bool] = deque(maxlen=SCORED)
        self._scores: list[tuple[float, float | None, bool, float]] = []

    def run(self) -> dict[str, Any]:
        """Return the figures of the week."""
        asked, due = set[UUID](), START
        for session in self._arrivals():
            self._live_until(session.created_at)
            if session.created_at >= due:
                self._forecast([each for each in self._live.pending if each.id not in asked])
                asked.update(each.id for each in self._live.pending)
                due = session.created_at + EVERY
            self._live.arrive(session)
            self._live.decide()
        errors = [score[0] for score in self._scores]
        by_limits = [score[1] for score in self._scores if score[1] is not None]
        return {
            "sessions": len(self._sessions),
            "scored": len(self._scores),
            "inside": round(sum(score[2] for score in self._scores) / max(len(self._scores), 1), 2),
            "median_error_min": round(statistics.median(errors) / 60, 1),
            "median_wait_min": round(statistics.median(score[3] for score in self._scores) / 60, 1),
            "factor": round(statistics.median(by_limits) / statistics.median(errors), 1) if by_limits else None,
        }

    def _live_until(self, moment: datetime) -> None:
        while (following := self._live.next_moment()) and following <= moment:
            self._live.go_on(following)
            self._live.decide()
            self._learn()
        self._live.go_on(moment)
        self._learn()

    def _learn(self) -> None:
        """Count sessions that have ended, and score forecasts of those that have started."""
        for pk, began in list(self._live.starts.items()):
            if pk in self._made:
                self._score(self._made.pop(pk), began)
            _, person, length = self._sessions[pk]
            if began + length <= self._live.now:
                for key in _keys(person, self._sessions[pk][0]):
                    self._counts[key] = with_length(self._counts.get(key, []), length.total_seconds())
                del self._live.starts[pk]

    def _score(self, made: Made, began: datetime) -> None:
        self._ratios.appendleft(ratio_of(made.at, made.expected, began))
        inside = made.range.early <= began <= made.range.late
        self._inside.appendleft(inside)
        if made.at < START + timedelta(days=1):
            return
        apart = abs((began - made.expected).total_seconds())
        by_limits = abs((began - made.by_limits).total_seconds()) if made.by_limits else None
        self._scores.append((apart, by_limits, inside, (began - made.at).total_seconds()))

    def _forecast(self, sessions: Sequence[SessionView]) -> None:
        if not sessions:
            return
        live = self._live
        snapshot = Snapshot(live.now, "bench", live.agents, tuple(live.pending), self._rules, held=live.shares)
        likely, slow = (foresee_starts(snapshot, self._occupants(q), self._lengths(q)) for q in (0.5, 0.9))
        limited = foresee_starts(snapshot, self._occupants(None), lambda pk: LIMIT)
        spread = spread_of(list(self._ratios), list(self._inside))
        for each in sessions:
            if expected := likely.starts.get(each.id):
                found = range_of(live.now, expected, slow.starts.get(each.id, expected), spread)
                self._made[each.id] = Made(live.now, expected, found, limited.starts.get(each.id))

    def _occupants(self, share: float | None) -> list[Occupant]:
        found = []
        for each in self._live.placed:
            session, person, _ = self._sessions[each.id]
            began = self._live.starts[each.id]
            length: timedelta | None = LIMIT
            if share is not None:
                length = length_at(share, self._known(person, session), beyond=self._live.now - began)
            ends_at = min(began + (length or LIMIT), began + LIMIT)
            found.append(Occupant(each.id, each.held, each.holder, max(ends_at, self._live.now)))
        return found

    def _lengths(self, share: float) -> Any:
        def length_of(pk: UUID) -> timedelta:
            session, person, _ = self._sessions[pk]
            return length_at(share, self._known(person, session)) or LIMIT

        return length_of

    def _known(self, person: int, session: SessionView) -> list[list[float]]:
        return [self._counts[key] for key in _keys(person, session) if key in self._counts]

    def _true_length(self, pk: UUID) -> timedelta:
        return self._sessions[pk][2]

    def _habit(self) -> tuple[Habit, ...]:
        draw = self._chance
        return tuple(
            Habit(draw.choice((1, 1, 2, 4, 8)), draw.choice((0.3, 1, 3, 8)), draw.choice((0.3, 0.6, 1.0)))
            for _ in range(3)
        )

    def _arrivals(self) -> Iterator[SessionView]:
        """Yield sessions, of which the day has more than the night; together they ask for somewhat more than all."""
        draw, now, number = self._chance, START, 0
        mean = statistics.mean(h.gpus * h.hours * 2.718 ** (h.sigma**2 / 2) for habits in self._habits for h in habits)
        gap = mean * 3600 / (len(self._agents) * 8 * 1.0)
        while now < self._end:
            busy = 1.6 if 8 <= now.hour < 20 else 0.4
            now += timedelta(seconds=draw.expovariate(busy / gap))
            person = draw.randrange(PEOPLE)
            kind = draw.randrange(3)
            habit = self._habits[person][kind]
            hours = min(draw.lognormvariate(0, habit.sigma) * habit.hours, LIMIT.total_seconds() / 3600)
            yield self._new(number, now, person, kind, timedelta(hours=hours))
            number += 1

    def _new(self, number: int, now: datetime, person: int, kind: int, length: timedelta) -> SessionView:
        gpus = self._habits[person][kind].gpus
        slots = Slots.parse({"cpu": gpus * 4, "mem": f"{gpus * 16}g", "cuda.device": gpus})
        pk, kernel = UUID(int=10**6 + number), KernelView(UUID(int=10**9 + number), slots, "x86_64")
        session = SessionView(
            pk,
            f"s-{number}",
            now,
            10,
            (kernel,),
            image=f"image-{kind}",
            holder=Holder(f"user:{person}"),
            longest_run=LIMIT,
        )
        self._sessions[pk] = session, person, length
        return session


def _keys(person: int, session: SessionView) -> tuple[str, ...]:
    return f"{person} {session.image}", f"{person}", session.image, ""


if __name__ == "__main__":
    main()
