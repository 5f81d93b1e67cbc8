"""How long one scheduling pass takes: 10,000 pending sessions, 1,000 agents, 20 shapes, four slot types."""

from __future__ import annotations

import gc
import json
import statistics
import sys
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from uuid import UUID

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from backendai.core.slots import Slots
from backendai.scheduler.decide import decide
from backendai.scheduler.snapshot import AgentView, KernelView, Rules, SessionView, Snapshot

NOW = datetime(2025, 1, 1, tzinfo=UTC)
SESSIONS, AGENTS, SHAPES, ROUNDS = 10_000, 1_000, 20, 3
CAPACITY = Slots.parse({"cpu": 128, "mem": "1t", "cuda.device": 8})
CAPACITY_NO_GPU = Slots.parse({"cpu": 128, "mem": "1t"})


def run() -> dict[str, float]:
    """Return milliseconds per pass (median of three) with empty and with nearly full agents, and how many it placed."""
    empty, full = snapshot(busy=False), snapshot(busy=True)
    return {
        "pass_ms_empty": milliseconds(empty),
        "pass_ms_saturated": milliseconds(full),
        "pass_ms_saturated_lifo": milliseconds(snapshot(busy=True, sequence="lifo")),
        "pass_ms_empty_dispersed": milliseconds(snapshot(busy=False, selection="dispersed")),
        "placed_empty": len(decide(empty).placements),
        "placed_saturated": len(decide(full).placements),
    }


def snapshot(*, busy: bool, sequence: str = "fifo", selection: str = "concentrated") -> Snapshot:
    """Return a group whose agents are all empty, or have one core and a little memory left."""
    agents = tuple(agent(number, busy) for number in range(AGENTS))
    pending = tuple(session(number) for number in range(SESSIONS))
    return Snapshot(NOW, "bench", agents, pending, Rules(sequence=sequence, selection=selection))


def agent(number: int, busy: bool) -> AgentView:
    """Return one agent; every second one has eight accelerators."""
    capacity = CAPACITY if number % 2 else CAPACITY_NO_GPU
    left = Slots.parse({"cpu": 0.5, "mem": f"{number % 64}m"})
    return AgentView(UUID(int=number), f"agent-{number:04}", "x86_64", capacity, capacity - left if busy else Slots())


def session(number: int) -> SessionView:
    """Return one single-kernel session of one of the shapes; a quarter of them asks for accelerators."""
    shape = number % SHAPES
    amounts: dict[str, object] = {"cpu": 1 + shape % 8, "mem": f"{1 + shape}g"}
    if shape % 4 == 0:
        amounts["cuda.device"] = 1 + shape // 16
    kernel = KernelView(UUID(int=SESSIONS + number), Slots.parse(amounts), "x86_64")
    return SessionView(UUID(int=number), f"session-{number}", NOW + timedelta(seconds=number), 10, (kernel,))


def milliseconds(view: Snapshot) -> float:
    """Return the median time of a pass over the snapshot."""
    times = []
    for _ in range(ROUNDS):
        gc.collect()
        started = time.perf_counter()
        decide(view)
        times.append((time.perf_counter() - started) * 1000)
    return round(statistics.median(times), 1)


if __name__ == "__main__":
    print(json.dumps(run()))
