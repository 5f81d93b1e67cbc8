"""Packs all amounts of an agent into one integer. Comparing, reserving and testing are then one operation each.

Every slot has a bit field with a guard bit above it; the most precious slot has the highest field. Packed numbers
compare like lists of amounts. To test a request, it is subtracted from the free amounts with all guard bits set: the
guard bit of every field that is too small becomes 0.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence


class Packing:
    """The bit field of each slot in one pass. ``slot_order``: all offered slots, the most precious first. ``largest``:
    by slot, the largest free amount of any agent. ``agents``: the number of agents."""

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
        """Return free amounts packed into one integer. Negative amounts, which occur after an agent's capacity fell,
        count as 0."""
        packed = 0
        for name, amount in free.items():
            if amount > 0:
                shift, most = self._fields[name]
                packed |= (amount if amount < most else most) << shift
        return packed

    def cost(self, items: Iterable[tuple[str, int]]) -> int | None:
        """Return requested amounts packed into one integer; None if no agent is large enough for one of them."""
        cost = 0
        for name, amount in items:
            shift, most = self._fields.get(name, (0, -1))
            if amount > most:
                return None
            cost |= amount << shift
        return cost

    def field(self, name: str) -> int:
        """Return the mask of the bits that hold a slot's amount; 0 if no agent offers the slot."""
        shift, most = self._fields.get(name, (0, 0))
        return most << shift

    def most_of(self, several: Sequence[int]) -> int:
        """Return one packed integer with the largest amount of each slot among ``several``."""
        return sum([max([number & field for number in several]) for field in self._masks])

    def has_room(self, packed: int, cost: int) -> bool:
        """Return whether the packed free amounts cover every amount of the packed request."""
        return (packed | self.guards) - cost & self.guards == self.guards
