"""Orders agents before any selection strategy: an agent whose accelerators the session would leave unused comes
later."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from backendai.scheduler.selection import Selection
from backendai.scheduler.selections import SELECTIONS as SELECTIONS

ORDINARY = frozenset({"cpu", "mem"})  # every session uses some, so leaving them free wastes nothing


def selection_named(name: str) -> Selection:
    """Return the selection with this name. Raises ValueError if none has it."""
    try:
        return SELECTIONS[name]
    except KeyError:
        raise ValueError(f"no selection is called {name!r}: use one of {', '.join(SELECTIONS)}") from None


def accelerators_in(free: Mapping[str, int]) -> frozenset[str]:
    """Return the kinds of accelerators with a free amount."""
    return frozenset([name for name, amount in free.items() if amount > 0 and name not in ORDINARY])


def whole_slot_order(slot_order: Iterable[str], offered: Collection[str]) -> tuple[str, ...]:
    """Return all offered slots, the most precious first. Slots that are missing from the configured order follow in
    alphabetical order, but before ``cpu`` and ``mem`` at its end: an unlisted accelerator is more precious than
    these."""
    named = list(dict.fromkeys(slot_order))
    closing = len(named)
    while closing and named[closing - 1] in ORDINARY:
        closing -= 1
    closing = closing or len(named)
    unnamed = sorted(set(offered) - set(named), key=lambda name: (name in ORDINARY, name))
    accelerators = [name for name in unnamed if name not in ORDINARY]
    ordinary = [name for name in unnamed if name in ORDINARY]
    return tuple(name for name in (*named[:closing], *accelerators, *named[closing:], *ordinary) if name in offered)
