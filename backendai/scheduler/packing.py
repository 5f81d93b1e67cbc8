"""All amounts of an agent in one whole number: comparing, booking and testing for room are one operation each.

Every slot has a field, the most precious one the highest, with one bit to spare above it. So numbers compare like lists
of amounts; and when a request is taken from what is free with the spare bits set, a field that is too small uses its
own.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence


class Packing:
    """The fields of one pass. ``slot_order`` names every slot on offer, ``largest`` bounds what is free of it."""

    def __init__(self, slot_order: tuple[str, ...], largest: Mapping[str, int], agents: int) -> None:
        self.slot_order = slot_order
        self.order_bits = max(agents, 1).bit_length()
        self._fields: dict[str, tuple[int, int]] = {}
        self._masks: list[int] = []
        self.guards = self.top = shift = 0
        for name in reversed(slot_order):
            most = (1 << largest[name].bit_length()) - 1
            self._fields[name] = shift, most
            self._masks.append(most << shift)
            self.top |= most << shift
            shift += most.bit_length()
            self.guards |= 1 << shift
            shift += 1

    def pack(self, free: Mapping[str, int]) -> int:
        """Return the amounts as one number; less than nothing (the agent shrank) counts as nothing."""
        packed = 0
        for name, amount in free.items():
            if amount > 0:
                shift, most = self._fields[name]
                packed |= (amount if amount < most else most) << shift
        return packed

    def cost(self, items: Iterable[tuple[str, int]]) -> int | None:
        """Return what a request asks for as one number, or None when that is more than any agent can have."""
        cost = 0
        for name, amount in items:
            shift, most = self._fields.get(name, (0, -1))
            if amount > most:
                return None
            cost |= amount << shift
        return cost

    def field(self, name: str) -> int:
        """Return the bits of a slot, none for one that nobody offers."""
        shift, most = self._fields.get(name, (0, 0))
        return most << shift

    def most_of(self, several: Sequence[int]) -> int:
        """Return packed amounts of which each is the largest of its slot."""
        return sum([max([number & field for number in several]) for field in self._masks])

    def has_room(self, packed: int, cost: int) -> bool:
        """Return whether every amount is there."""
        return (packed | self.guards) - cost & self.guards == self.guards
