"""The free amounts of an agent against a request: what is short, by how much, and in words."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Protocol

from backendai.base.core.messages import Message
from backendai.base.core.slots import Shortage, amount_in_words, decimal_text, is_accelerator
from backendai.scheduler.capacity.agent_state import AgentState
from backendai.scheduler.demand import Request
from backendai.scheduler.snapshot import AgentView


class Offer(Protocol):
    """Any object with an agent's free amounts by slot (thousandths)."""

    @property
    def free(self) -> Mapping[str, int]: ...


@dataclass(frozen=True, slots=True)
class Fragment:
    """The free amounts of a slot that is too fragmented for a kernel: the sum over the agent's devices, and the largest
    on one device."""

    slot: str
    wanted: int
    largest: int
    free: int

    def __str__(self) -> str:
        wanted, free, largest = amount_in_words(self.slot, self.wanted), *map(decimal_text, (self.free, self.largest))
        return Message(
            "{wanted} requested, {free} free in total, at most {largest} on one device",
            wanted=wanted,
            free=free,
            largest=largest,
        )


def shortages(agent: Offer, request: Request) -> list[Shortage]:
    """Return the slots of which the agent has too little: the requested and the free amount of each."""
    return [
        Shortage(name, amount, agent.free.get(name, 0))
        for name, amount in request.items
        if agent.free.get(name, 0) < amount
    ]


def distance(agent: Offer, request: Request) -> int:
    """Return how far the agent is from fitting: the missing share of each requested amount in thousandths, summed over
    slots."""
    total = 0
    for name, amount in request.items:
        missing = amount - agent.free.get(name, 0)
        if missing > 0:
            total += missing * 1000 // amount
    return total


def broken_devices(agents: Iterable[AgentState | AgentView], slots: Iterable[str]) -> str:
    """Return the sentence about accelerators that the first of these agents with such does not offer. Empty if there
    are none, or if no slot is one of accelerators."""
    found = next((agent for agent in agents if agent.unhealthy), None) if any(map(is_accelerator, slots)) else None
    return Message("On {agent}: {note}", agent=found.name, note=found.unhealthy) if found else ""


def describe_request(request: Request) -> str:
    """Return the requested amounts as text: ``2 CPU cores, 4 GiB of memory``, or ``no resources``."""
    return request.wanted.describe() or Message("no resources")


def shortage_details(agent: str, missing: list[Shortage]) -> dict[str, object]:
    """Return the shortages as JSON values: amounts are decimal strings in the slot's unit."""
    rows = [{"slot": s.name, "wanted": decimal_text(s.wanted), "free": decimal_text(s.free)} for s in missing]
    return {"agent": agent, "shortages": rows}


def fragments(state: AgentState, request: Request) -> list[Fragment]:
    """Return how the agent's free amount of each requested accelerator is distributed over its devices. Empty if its
    devices are unknown."""
    if state.book is None:
        return []
    return [
        Fragment(slot, max(amounts), *state.book.largest_and_sum(slot))
        for slot in sorted(request.kinds & set(state.book.slots))
        if (amounts := [amount for kernel in request.accelerators for name, amount in kernel if name == slot])
    ]


def fragment_details(agent: str, fragments: list[Fragment]) -> dict[str, object]:
    """Return the fragments as JSON values: amounts are decimal strings in the slot's unit."""
    rows = [
        {
            "slot": each.slot,
            "wanted": decimal_text(each.wanted),
            "free": decimal_text(each.free),
            "largest": decimal_text(each.largest),
        }
        for each in fragments
    ]
    return {"agent": agent, "fragments": rows}
