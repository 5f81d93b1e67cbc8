"""How much is free and taken in each resource group, for the bars."""

from __future__ import annotations

from dataclasses import dataclass, field

from backendai.accounts.models import User
from backendai.cluster.models import ResourceGroup
from backendai.cluster.slot_types import in_order, look_of, shown_amount
from backendai.compute.services.openings import groups_open
from backendai.core.slots import Slots
from backendai.planning.room import use_of
from backendai.texts.messages import in_words


@dataclass(frozen=True, slots=True)
class Bar:
    """One slot: taken and whole in thousandths, and as text."""

    slot: str
    used: int
    total: int

    @property
    def name(self) -> str:
        """The slot's name for people."""
        return name_of_slot(self.slot)

    @property
    def percent(self) -> int:
        """How full it is, 0 to 100."""
        return min(100, max(0, round(100 * self.used / self.total))) if self.total else 0

    @property
    def free_percent(self) -> int:
        """How much of it is left, 0 to 100."""
        return 100 - self.percent if self.total else 0

    @property
    def used_text(self) -> str:
        """What is taken."""
        return shown_amount(self.slot, self.used)

    @property
    def total_text(self) -> str:
        """All there is."""
        return shown_amount(self.slot, self.total)

    @property
    def free(self) -> int:
        """What is left; never below nothing."""
        return max(0, self.total - self.used)

    @property
    def free_text(self) -> str:
        """The same as text."""
        return shown_amount(self.slot, self.free)


@dataclass(frozen=True, slots=True)
class RoomBars:
    """One resource group: its bars, how many agents answer, and how many sessions wait."""

    group: ResourceGroup
    waiting: int = 0
    agents: int = 0
    bars: list[Bar] = field(default_factory=list)


def bars_of(used: Slots, total: Slots) -> list[Bar]:
    """Return one bar per slot: in the order of the slot types."""
    return [Bar(name, used[name], total[name]) for name in in_order(used.keys() | total.keys())]


def rooms_for(user: User) -> list[RoomBars]:
    """Return the room in every group that is open to the user, counting agents that answer and take sessions."""
    found = use_of(groups_open(user))
    return [RoomBars(use.group, use.waiting, use.agents, bars_of(use.occupied, use.capacity)) for use in found]


def name_of_slot(slot: str) -> str:
    """Return a slot's name for people."""
    return in_words(look_of(slot).display_name)
