"""The free and occupied resources of each resource group, as bars."""

from __future__ import annotations

from dataclasses import dataclass, field

from backendai.base.core.slots import Slots
from backendai.base.texts.messages import in_words
from backendai.domain.accounts.models import User
from backendai.domain.cluster.models import ResourceGroup
from backendai.domain.cluster.slot_types import in_order, look_of, shown_amount
from backendai.domain.compute.services.requests.limits import groups_open
from backendai.domain.planning.amounts.free import use_of


@dataclass(frozen=True, slots=True)
class Bar:
    """The occupied and the total amount of one slot, in thousandths."""

    slot: str
    used: int
    total: int

    @property
    def name(self) -> str:
        """The display name of the slot."""
        return name_of_slot(self.slot)

    @property
    def percent(self) -> int:
        """The occupied share, 0 to 100."""
        return min(100, max(0, round(100 * self.used / self.total))) if self.total else 0

    @property
    def free_percent(self) -> int:
        """The free share, 0 to 100."""
        return 100 - self.percent if self.total else 0

    @property
    def used_text(self) -> str:
        """The occupied amount as text."""
        return shown_amount(self.slot, self.used)

    @property
    def total_text(self) -> str:
        """The total amount as text."""
        return shown_amount(self.slot, self.total)

    @property
    def free(self) -> int:
        """The free amount in thousandths, at least 0."""
        return max(0, self.total - self.used)

    @property
    def free_text(self) -> str:
        """The free amount as text."""
        return shown_amount(self.slot, self.free)


@dataclass(frozen=True, slots=True)
class RoomBars:
    """The bars of one resource group, with the numbers of its reachable agents and pending sessions. ``notes``: which
    agents do not count."""

    group: ResourceGroup
    waiting: int = 0
    agents: int = 0
    bars: list[Bar] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


def bars_of(used: Slots, total: Slots) -> list[Bar]:
    """Return a bar for each slot, in the order of the slot types."""
    return [Bar(name, used[name], total[name]) for name in in_order(used.keys() | total.keys())]


def rooms_for(user: User) -> list[RoomBars]:
    """Return the bars of every group open to the user. They count the reachable agents that take sessions."""
    found = use_of(groups_open(user))
    return [RoomBars(use.group, use.waiting, use.agents, bars_of(use.occupied, use.capacity)) for use in found]


def name_of_slot(slot: str) -> str:
    """Return the translated display name of a slot."""
    return in_words(look_of(slot).display_name)
