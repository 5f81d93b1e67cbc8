"""Who gives way to a session of higher priority: only sessions that free what it needs, and as few as possible."""

from __future__ import annotations

from datetime import timedelta
from uuid import UUID, uuid4

from hypothesis import given
from hypothesis import strategies as st

from backendai.base.core.slots import Slots
from backendai.scheduler.decide import decide
from backendai.scheduler.forecasts.world import Held
from backendai.scheduler.preemption import MOST_VICTIMS, Candidate, Preemption, preempt
from backendai.scheduler.snapshot import AgentView, SessionView, Snapshot
from tests.scheduler.worlds import a_session, a_snapshot, an_agent


def cpus(number: int) -> Slots:
    return Slots.parse({"cpu": number})


def running(on: AgentView, cpu: int, *, priority: int = 5, hours: float = 1) -> Candidate:
    return Candidate(uuid4(), priority, timedelta(hours=hours), (Held(on.id, cpus(cpu)),))


def wanting(cpu: int, *, priority: int = 50) -> SessionView:
    return a_session(asks={"cpu": cpu}, priority=priority)


def full(*amounts: int) -> list[AgentView]:
    return [an_agent(f"a{number}", has={"cpu": cpu}, used={"cpu": cpu}) for number, cpu in enumerate(amounts)]


def run(snap: Snapshot, candidates: list[Candidate], barred: frozenset[UUID] = frozenset()) -> Preemption | None:
    return preempt(snap, decide(snap).waits, candidates, barred)


def test_the_least_important_and_shortest_run_on_the_right_agent_gives_way() -> None:
    small, large = full(2, 8)
    snap = a_snapshot([small, large], [wanting(4)])
    on_small, first, second = running(small, 2, priority=1), running(large, 4, hours=9), running(large, 4, hours=2)
    found = run(snap, [on_small, first, second])
    assert found and found.victims == (second,)


def test_nobody_gives_way_to_an_equal_or_barred_session_or_in_vain() -> None:
    agents = full(4)
    one = running(agents[0], 4, priority=10)
    assert run(a_snapshot(agents, [wanting(4, priority=10)]), [one]) is None
    important = wanting(4)
    assert run(a_snapshot(agents, [important]), [one], frozenset({important.id})) is None
    assert run(a_snapshot(agents, [important]), [running(agents[0], 2)]) is None
    assert run(a_snapshot(agents, [important]), [one])


@given(st.lists(st.tuples(st.integers(0, 2), st.integers(1, 4), st.integers(0, 60)), max_size=12), st.integers(1, 8))
def test_every_victim_is_needed_and_all_together_suffice(rows: list[tuple[int, int, int]], asked: int) -> None:
    agents = full(8, 8, 8)
    candidates = [running(agents[on], cpu, priority=priority) for on, cpu, priority in rows]
    snap = a_snapshot(agents, [wanting(asked)])
    found = run(snap, candidates)
    if found is None:
        return
    assert len(found.victims) <= MOST_VICTIMS
    assert all(one.priority < 50 for one in found.victims)
    freed = {one.id: sum(held.amounts["cpu"] for each in found.victims for held in each.held if held.agent == one.id)
             for one in agents}  # fmt: skip
    where = max(freed, key=lambda each: freed[each])
    assert freed[where] >= asked * 1000
    assert sum(freed.values()) == freed[where]  # nobody on another agent gave way
