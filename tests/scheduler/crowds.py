"""Whole groups at random, with limits, running sessions, rules and everything else that a pass looks at."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from random import Random
from typing import Any
from uuid import uuid5

from hypothesis import strategies as st

from backendai.base.core.slots import Slots
from backendai.scheduler.rank import SELECTIONS
from backendai.scheduler.sequences import SEQUENCES
from backendai.scheduler.snapshot import (
    AgentView,
    Dependency,
    DependencyState,
    DeviceView,
    Holder,
    ImageBuild,
    LimitView,
    RunningView,
    SessionView,
    Snapshot,
)
from tests.scheduler.worlds import _IDS, NOW, a_session, a_snapshot, an_agent

USERS, PROJECTS, DOMAINS = ("ann", "ben", "cay"), ("vision", "speech"), ("lab", "guests")
HOLDERS = tuple(
    Holder(f"user:{user}", f"key-pair:{user}", f"project:{project}", f"domain:{domain}")
    for user, project, domain in (
        ("ann", "vision", "lab"), ("ben", "vision", "lab"), ("cay", "speech", "lab"), ("cay", "speech", "guests"),
    )
)  # fmt: skip


def a_crowd(chance: Random, **fixed: Any) -> Snapshot:
    """Return a group; what is ``fixed`` is a rule, or ``agents``, ``running``, ``pending`` or ``limits`` of it."""
    agents, running = _agents(chance)
    rules = {
        "sequence": chance.choice(sorted(SEQUENCES)),
        "selection": chance.choice(sorted(SELECTIONS)),
        "retries_to_skip": chance.choice([0, 0, 2]),
        "backfill": chance.random() < 0.3,
    }
    rest = {
        "agents": agents,
        "pending": [_session(chance, number) for number in range(chance.randint(0, 9))],
        "running": tuple(running),
        "limits": _limits(chance),
        "held": {f"user:{user}": _amounts(chance, 2) for user in USERS if chance.random() < 0.6},
        "weights": {key: chance.choice([0.5, 1.0, 4.0]) for key in _keys() if chance.random() < 0.4},
        "past_usage": {key: chance.choice([0.1, 0.5, 2.0]) for key in _keys() if chance.random() < 0.6},
    }
    return a_snapshot(**(rest | rules | fixed))


def crowds(**fixed: Any) -> st.SearchStrategy[Snapshot]:
    """Groups for Hypothesis, by their seeds."""
    return st.integers(0, 2**32).map(lambda seed: a_crowd(Random(seed), **fixed))


def _keys() -> list[str]:
    return sorted({key for holder in HOLDERS for key in holder.keys})


def _amounts(chance: Random, most: int) -> Slots:
    """At least one core, and perhaps memory and accelerators."""
    amounts = {"cpu": chance.randint(1, most), "mem": chance.randint(0, most)}
    if chance.random() < 0.4:
        amounts["cuda.device"] = chance.randint(1, min(most, 2))
    return Slots.parse(amounts)


def _agents(chance: Random) -> tuple[list[AgentView], list[RunningView]]:
    agents, running = [], []
    for number in range(chance.choice([1, 2, 2, 3, 4])):
        agent = an_agent(
            f"agent-{number}",
            has={"cpu": chance.randint(2, 6), "mem": chance.randint(2, 6), "cuda.device": chance.choice([0, 2, 4, 4])},
            alive=chance.random() < 0.9,
            schedulable=chance.random() < 0.9,
            max_kernels=chance.choice([None, None, None, 3]),
            architecture=chance.choice(["x86_64"] * 9 + ["aarch64"]),
        )
        for index in range(chance.randint(0, 3)):
            amounts = _amounts(chance, 2)
            if amounts.fits(agent.free) and (agent.max_kernels is None or agent.kernels < agent.max_kernels):
                agent = replace(agent, occupied=agent.occupied + amounts, kernels=agent.kernels + 1)
                ends_at = NOW + timedelta(minutes=chance.randint(-1, 6)) if chance.random() < 0.6 else None
                session_id = uuid5(_IDS, f"running-{number}-{index}")
                running.append(RunningView(session_id, ((agent.id, amounts, 1),), ends_at))
        agents.append(_with_devices(agent) if chance.random() < 0.3 else agent)
    return agents, running


def _with_devices(agent: AgentView) -> AgentView:
    taken = agent.occupied["cuda.device"] // 1000
    devices = [
        DeviceView(f"{agent.name}/{index}", "cuda.device", 1000, 1000 if index < taken else 0)
        for index in range(agent.capacity["cuda.device"] // 1000)
    ]
    return replace(agent, devices=tuple(devices))


def _limits(chance: Random) -> dict[str, LimitView]:
    limits = {}
    for key in _keys():
        if chance.random() < 0.12:
            scope, name = key.split(":")
            slots = {name: chance.randint(1, 5) for name in ("cpu", "mem", "cuda.device") if chance.random() < 0.5}
            limits[key] = LimitView(
                scope, name, Slots.parse(slots),
                unnamed_limited=chance.random() < 0.1,
                max_sessions=chance.choice([None, None, None, 0, 2, 3]),
                used=Slots.parse({"cpu": chance.randint(0, 2)}),
                sessions=chance.randint(0, 2),
                forbidden=frozenset({"cuda.device"} - slots.keys()) if chance.random() < 0.2 else frozenset(),
            )  # fmt: skip
    return limits


def _session(chance: Random, number: int) -> SessionView:
    kernels = [_amounts(chance, chance.choice([1, 2, 4])) for _ in range(chance.choice([1, 1, 1, 2, 3]))]
    state = chance.choice(list(DependencyState))
    odd = chance.randint(0, 30)
    return a_session(
        f"session-{number}",
        kernels=[amounts.to_json() for amounts in kernels],
        age=chance.randint(0, 3),
        priority=chance.choice([10, 10, 5]),
        multi_node=chance.random() < 0.5,
        attempts=chance.randint(0, 3),
        overtaken_since=NOW - timedelta(hours=chance.choice([1, 30])) if chance.random() < 0.4 else None,
        longest_run=timedelta(minutes=chance.randint(1, 6)) if chance.random() < 0.6 else None,
        holder=chance.choice(HOLDERS),
        starts_at=NOW + timedelta(minutes=chance.randint(-1, 1)) if odd == 0 else None,
        image_build=ImageBuild(0.5, "") if odd == 1 else None,
        dependencies=(Dependency(uuid5(_IDS, "other"), "other", state),) if odd in (2, 3, 4) else (),
        session_type="inference" if odd == 5 else "batch",
        designated=frozenset({uuid5(_IDS, "agent-0")}) if odd == 6 else frozenset(),
    )
