"""Which of the agents that fit is the best one: a sort key, smallest first.

The key of an agent depends on what is free and on *which* slots a request names, not on how much it asks of them: the
amounts shift all agents alike. So one ranking serves every request that names the same slots.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

FILL, SPREAD = 1, -1
SELECTIONS = {"concentrated": FILL, "dispersed": SPREAD}
ORDINARY = frozenset({"cpu", "mem"})  # every session takes some: leaving them free wastes nothing

Key = tuple[int, ...]


def selection_named(name: str) -> int:
    """Return ``FILL`` (least left first) or ``SPREAD`` (most left first); ValueError for an unknown name."""
    try:
        return SELECTIONS[name]
    except KeyError:
        raise ValueError(f"no selection is called {name!r}: use one of {', '.join(SELECTIONS)}") from None


def wasted(free: Mapping[str, int], requested: Collection[str]) -> int:
    """Return how many kinds of accelerators would lie beside the session, free but not asked for."""
    return sum(1 for name, amount in free.items() if amount > 0 and name not in requested and name not in ORDINARY)


def amounts_key(amounts: Mapping[str, int], direction: int, slot_order: Sequence[str]) -> tuple[int, ...]:
    """Return the amounts in the order of importance, turned so that the better agent is the smaller one.

    Less than nothing (an agent that shrank below what runs on it) counts as nothing.
    """
    return tuple([direction * max(amounts.get(name, 0), 0) for name in slot_order])
