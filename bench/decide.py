"""How long the scheduler takes to decide: 10,000 pending sessions, 1,000 agents, 4 slots, with all reasons.

bin/bench decide [--json] [--rounds N] [--only NAME]

Times are milliseconds of processor time, the median of several rounds, with the collector of cyclic garbage switched
off within a round. ``empty``: nothing runs and all sessions fit. ``nearly_full``: each agent has half a core left, so
that none does. The sessions have 64 shapes, or each its own (``distinct``).
"""

from __future__ import annotations

import gc
import random
import statistics
import time
from collections.abc import Iterator, Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import cache
from typing import Any
from uuid import UUID

from backendai.base.core.slots import Slots
from backendai.scheduler.decide import decide
from backendai.scheduler.snapshot import (
    AgentView,
    Holder,
    KernelView,
    LimitView,
    Rules,
    RunningView,
    SessionView,
    Snapshot,
)
from bench._command import command, show

NOW = datetime(2025, 1, 1, tzinfo=UTC)
SESSIONS, AGENTS, SHAPES, USERS, PROJECTS = 10_000, 1_000, 64, 500, 25
STRATEGIES: dict[str, dict[str, object]] = {
    "fifo": {},
    "drf": {"sequence": "drf"},
    "fair-share": {"sequence": "fair-share"},
    "lifo": {"sequence": "lifo"},
    "fifo-past-the-first": {"retries_to_skip": 1},
    "fifo-backfill": {"backfill": True},
    "dispersed": {"selection": "dispersed"},
    "round-robin": {"selection": "round-robin"},
}


def main() -> None:
    """Measure and print."""
    parser = command("decide", __doc__, {"rounds": (5, "how often each is measured")})
    parser.add_argument("--only", choices=STRATEGIES, help="measure one strategy only")
    options = parser.parse_args()
    show(options, run(options.rounds, options.only))


def run(rounds: int, only: str | None = None) -> dict[str, Any]:
    """Return milliseconds of ``decide`` by strategy and case."""
    names = [only] if only else list(STRATEGIES)
    figures: dict[str, Any] = {"decide_ms": {name: dict(_cases(STRATEGIES[name], rounds)) for name in names}}
    return figures | {"reference_ms": _milliseconds_of(_reference, rounds)}


def _cases(rules: Mapping[str, object], rounds: int) -> Iterator[tuple[str, float]]:
    for distinct in ("", "_distinct"):
        empty = _snapshot(SESSIONS, busy=False, shapes=SESSIONS if distinct else SHAPES)
        full = _snapshot(SESSIONS, busy=True, shapes=SESSIONS if distinct else SHAPES)
        yield f"empty{distinct}", _milliseconds(empty, rules, rounds)
        yield f"nearly_full{distinct}", _milliseconds(full, rules, rounds)
    limited = replace(_snapshot(SESSIONS, busy=False, shapes=SHAPES), limits=_limits())
    yield "empty_with_limits", _milliseconds(limited, rules, rounds)


def _milliseconds(snapshot: Snapshot, rules: Mapping[str, object], rounds: int) -> float:
    snapshot = replace(snapshot, rules=replace(snapshot.rules, **rules))  # type: ignore[arg-type]
    return _milliseconds_of(lambda: decide(snapshot), rounds)


def _milliseconds_of(work, rounds: int) -> float:  # type: ignore[no-untyped-def]
    """Return the median of the processor times of several rounds."""
    times = []
    for _ in range(rounds):
        gc.collect()
        gc.disable()
        started = time.process_time()
        kept = work()
        times.append((time.process_time() - started) * 1000)
        gc.enable()
        del kept
    return round(statistics.median(times), 1)


def _reference() -> int:
    """Do a fixed amount of plain work: it tells how fast this machine is just now."""
    seen: dict[tuple[int, int], int] = {}
    for number in range(100_000):
        seen[number % 977, number % 31] = number
    return len(seen)


@cache
def _snapshot(sessions: int, *, busy: bool, shapes: int) -> Snapshot:
    """Return a group with a million cores for every 10,000 sessions, all of them empty or nearly full."""
    chance = random.Random(1)
    agents = tuple(_agent(number, busy, max(1, sessions // SESSIONS)) for number in range(AGENTS))
    running = tuple(
        RunningView(
            UUID(int=10**9 + agent.id.int),
            ((agent.id, agent.occupied, agent.kernels),),
            NOW + timedelta(minutes=chance.randint(1, 600)) if chance.random() < 0.5 else None,
        )
        for agent in agents
        if busy
    )
    amounts = [_amounts(shape, shapes) for shape in range(shapes)]
    pending = tuple(_session(number, amounts[number % shapes], chance) for number in range(sessions))
    keys = {key for session in pending for key in session.holder.keys}
    return Snapshot(
        NOW, "bench", agents, pending, Rules(), running=running,
        held={f"user:{user}": Slots.parse({"cpu": user % 7, "mem": "1g"}) for user in range(USERS)},
        weights={f"user:{user}": 1.0 + user % 3 for user in range(USERS)},
        past_usage={key: chance.random() for key in sorted(keys)},
    )  # fmt: skip


def _agent(number: int, busy: bool, scale: int) -> AgentView:
    """Return one agent; every second one has accelerators of one of two kinds."""
    amounts: dict[str, object] = {"cpu": 128 * scale, "mem": f"{scale}t"}
    if number % 2:
        amounts["cuda.device" if number % 4 == 1 else "rocm.device"] = 16 * scale
    capacity = Slots.parse(amounts)
    left = Slots.parse({"cpu": 0.5, "mem": f"{number % 64}m"})
    occupied = capacity - left if busy else Slots()
    return AgentView(UUID(int=number), f"agent-{number:04}", "x86_64", capacity, occupied, kernels=4 if busy else 0)


def _amounts(shape: int, shapes: int) -> Slots:
    """Return what sessions of the shape ask for; a quarter of them asks for accelerators, of two kinds in turn."""
    step = shape % SHAPES
    mem = (1 + step) * 2**28 + (shape // SHAPES) * 2**16
    amounts: dict[str, object] = {"cpu": 1 + step % 8, "mem": mem}
    if step % 4 == 0:
        amounts["cuda.device" if step % 8 else "rocm.device"] = 1 + step // 32
    return Slots.parse(amounts)


def _session(number: int, amounts: Slots, chance: random.Random) -> SessionView:
    user = chance.randrange(USERS)
    holder = Holder(f"user:{user}", f"key-pair:{user}", f"project:{user % PROJECTS}", "domain:1")
    kernel = KernelView(UUID(int=10**6 + number), amounts, "x86_64")
    return SessionView(
        UUID(int=number), f"session-{number}", NOW - timedelta(days=2) + timedelta(seconds=number), 10, (kernel,),
        holder=holder, attempts=number % 2, longest_run=timedelta(minutes=chance.randint(1, 600)),
    )  # fmt: skip


def _limits() -> dict[str, LimitView]:
    """Return limits on every holder that are wide enough: all of them are counted, none holds anybody."""
    slots = Slots.parse({"cpu": 10**6, "mem": "1p", "cuda.device": 10**5, "rocm.device": 10**5})
    names = [f"{scope}:{user}" for scope in ("user", "key-pair") for user in range(USERS)]
    names += [f"project:{project}" for project in range(PROJECTS)] + ["domain:1"]
    return {name: LimitView(name.split(":")[0], name, slots, max_sessions=10**6) for name in names}


if __name__ == "__main__":
    main()
