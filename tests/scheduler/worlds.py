"""Small worlds for the scheduler's tests: agents and sessions in a word or two, and random ones for properties."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID, uuid5

from hypothesis import strategies as st

from backendai.base.core.slots import Slots
from backendai.scheduler.decide import decide
from backendai.scheduler.plan import Placement, Plan, Wait
from backendai.scheduler.snapshot import AgentView, ImageBuild, KernelView, Rules, SessionView, Snapshot

NOW = datetime(2025, 6, 2, 9, 0, tzinfo=UTC)
_IDS = UUID(int=0)


def an_agent(name: str = "gpu-01", *, used: dict[str, Any] | None = None, **changes: Any) -> AgentView:
    capacity = Slots.parse(changes.pop("has", {"cpu": 8, "mem": "32g", "cuda.device": 4}))
    changes.setdefault("architecture", "x86_64")
    return AgentView(uuid5(_IDS, name), name, capacity=capacity, occupied=Slots.parse(used or {}), **changes)


def a_session(name: str = "train", asks: dict[str, Any] | None = None, *, age: int = 0, **changes: Any) -> SessionView:
    """One kernel that asks for ``asks``; ``age`` in minutes; ``kernels`` may list the amounts of several."""
    amounts = changes.pop("kernels", [{"cpu": 1} if asks is None else asks])
    architectures = changes.pop("architectures", ["x86_64"] * len(amounts))
    images = changes.pop("node_images", [changes.pop("node_image", "")] * len(amounts))
    kernels = tuple(
        KernelView(uuid5(_IDS, f"{name}/{index}"), Slots.parse(each), architecture, image)
        for index, (each, architecture, image) in enumerate(zip(amounts, architectures, images, strict=True))
    )
    changes.setdefault("priority", 10)
    return SessionView(uuid5(_IDS, name), name, NOW - timedelta(minutes=age), kernels=kernels, **changes)


def a_snapshot(agents: list[AgentView], pending: list[SessionView], **changes: Any) -> Snapshot:
    """What is a rule among the changes goes into the rules."""
    rules = {name: changes.pop(name) for name in list(changes) if name in Rules.__dataclass_fields__}
    return Snapshot(NOW, "default", tuple(agents), tuple(pending), rules=Rules(**rules), **changes)


def plan_of(agents: list[AgentView], pending: list[SessionView], **changes: Any) -> Plan:
    return decide(a_snapshot(agents, pending, **changes))


def wait_of(plan: Plan, session: SessionView) -> Wait:
    return next(wait for wait in plan.waits if wait.session_id == session.id)


def placement_of(plan: Plan, session: SessionView) -> Placement:
    return next(placement for placement in plan.placements if placement.session_id == session.id)


def agents_of(plan: Plan, session: SessionView, agents: list[AgentView]) -> list[str]:
    """Names of the agents of a placed session, in the order of its kernels."""
    names = {agent.id: agent.name for agent in agents}
    kernels = placement_of(plan, session).kernels
    return [names[kernels[kernel.id]] for kernel in session.kernels]


def _seldom(usual: Any, *odd: Any) -> st.SearchStrategy[Any]:
    """The usual value five times in six."""
    return st.integers(0, 5).flatmap(lambda dice: st.sampled_from(odd) if dice == 5 else st.just(usual))


def _amounts(most: int) -> st.SearchStrategy[dict[str, int]]:
    return st.fixed_dictionaries(
        {"cpu": st.integers(0, most), "mem": st.integers(0, most)},
        optional={"cuda.device": st.integers(0, most), "tpu": st.integers(0, most // 3)},
    )


@st.composite
def random_agents(draw: st.DrawFn) -> list[AgentView]:
    return [
        an_agent(
            f"agent-{number}",
            has=draw(_amounts(9)),
            used=draw(_seldom({}, {"cpu": 1}, {"cpu": 3, "mem": 3, "cuda.device": 1}, {"mem": 9})),
            alive=draw(_seldom(True, False)),
            schedulable=draw(_seldom(True, False)),
            kernels=draw(st.integers(0, 2)),
            max_kernels=draw(_seldom(None, 1, 3)),
            architecture=draw(_seldom("x86_64", "aarch64", "")),
        )
        for number in range(draw(_seldom(3, 0, 1, 5)))
    ]


@st.composite
def random_sessions(draw: st.DrawFn, most: int = 8) -> list[SessionView]:
    sessions = []
    for number in range(draw(st.integers(0, most))):
        kernels = draw(
            st.lists(_amounts(4), min_size=1, max_size=3) if draw(st.booleans()) else _seldom([{"cpu": 1}], [])
        )
        avoided = draw(_seldom((), (0,), (1, 2)))
        sessions.append(
            a_session(
                f"session-{number}",
                kernels=kernels,
                architectures=[draw(_seldom("x86_64", "aarch64", "")) for _ in kernels],
                age=draw(st.integers(0, 3)),
                priority=draw(_seldom(10, 5)),
                multi_node=draw(st.booleans()),
                attempts=draw(st.integers(0, 3)),
                starts_at=draw(_seldom(None, NOW, NOW + timedelta(hours=1))),
                image_build=draw(_seldom(None, ImageBuild(0.5, ""), ImageBuild(None, "", failed=True))),
                avoid_agents=frozenset(uuid5(_IDS, f"agent-{each}") for each in avoided),
            )
        )
    return sessions


@st.composite
def random_snapshots(draw: st.DrawFn, **fixed: Any) -> Snapshot:
    rules = {
        "sequence": draw(st.sampled_from(["fifo", "lifo"])),
        "selection": draw(st.sampled_from(["concentrated", "dispersed"])),
        "retries_to_skip": draw(st.sampled_from([0, 0, 2])),
        "slot_order": draw(st.sampled_from([("cuda.device", "cuda.shares", "cpu", "mem"), ("mem",), ()])),
    }
    return a_snapshot(draw(random_agents()), draw(random_sessions()), **(rules | fixed))
