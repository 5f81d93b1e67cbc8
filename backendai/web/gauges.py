"""What one holds of what one may hold, as bars: on the dashboard. The numbers are those of ``planning.allowances``, of
the ledger, and of the room in a group."""

from __future__ import annotations

from dataclasses import dataclass

from django.utils.translation import gettext as _

from backendai.accounts.models import User
from backendai.cluster.slot_types import in_order
from backendai.compute.services.ledger import held_in_groups
from backendai.core.slots import Slots, format_amount, limit_text
from backendai.planning.allowances import Allowance, HolderLimits, OwnLimits
from backendai.web.resources import RoomBars, name_of_slot


@dataclass(frozen=True, slots=True)
class Gauge:
    """One thing with a limit, as a bar: whose limit it is (empty: nobody's), and how full it is."""

    slot: str  # empty: sessions
    allowance: Allowance
    holder: str = ""

    @property
    def name(self) -> str:
        """What it is, for people."""
        return name_of_slot(self.slot) if self.slot else _("Sessions")

    @property
    def percent(self) -> int | None:
        """How much of the limit is held, 0 to 100; None without a limit."""
        one = self.allowance
        if one.limit is None:
            return None
        return min(100, round(100 * one.used / one.limit)) if one.limit else 100

    @property
    def used(self) -> str:
        """What is held."""
        return self._text(self.allowance.used)

    @property
    def limit(self) -> str:
        """What may be held."""
        return limit_text(self.allowance.limit, self.slot)

    @property
    def left(self) -> str:
        """What may still be taken."""
        return limit_text(self.allowance.remaining, self.slot)

    @property
    def pending(self) -> str:
        """What waits; empty when nothing does."""
        return self._text(self.allowance.pending) if self.allowance.pending else ""

    def _text(self, amount: int) -> str:
        return format_amount(self.slot, amount) if self.slot else str(amount)


@dataclass(frozen=True, slots=True)
class Here:
    """One slot in one resource group, in thousandths: what one holds there, and how much more one can have now (None:
    any amount). ``holder``: whose limit leaves no more; empty: the group has no more, or there is no limit."""

    slot: str
    held: int
    more: int | None
    holder: str = ""

    @property
    def name(self) -> str:
        """The slot's name for people."""
        return name_of_slot(self.slot)

    @property
    def held_text(self) -> str:
        """What one holds."""
        return format_amount(self.slot, self.held)

    @property
    def more_text(self) -> str:
        """How much more one can have now."""
        return limit_text(self.more, self.slot)

    @property
    def percent(self) -> int | None:
        """How much of what one could have one holds, 0 to 100; None where that is any amount."""
        if self.more is None:
            return None
        reach = self.held + self.more
        return round(100 * self.held / reach) if reach else 100


def tightest(limits: OwnLimits) -> list[Gauge]:
    """Return one bar for each thing: that of the holder whose limit leaves the least, else of the user's own use."""
    user = next(holder for holder in limits.holders if holder.scope == "user")
    of_sessions = limits.strictest_sessions
    gauges = [Gauge("", (of_sessions or user).sessions, of_sessions.label if of_sessions else "")]
    for slot, holder in limits.strictest.items():
        gauges.append(Gauge(slot, (holder or user).slots[slot], holder.label if holder else ""))
    return gauges


def gauges_of(holder: HolderLimits) -> list[Gauge]:
    """Return the bars of one holder, sessions first."""
    return [Gauge("", holder.sessions), *(Gauge(slot, one) for slot, one in holder.slots.items())]


def own_use_in(room: RoomBars, user: User, limits: OwnLimits, *, shows_room: bool) -> list[Here]:
    """Return what the user holds in a group, slot by slot, and how much more they can have there: what the strictest
    limit leaves, and what is free (``shows_room``: else that is the site's secret). One query."""
    held = held_in_groups(user.pk).get(room.group.pk, Slots())
    free = {bar.slot: bar.free for bar in room.bars} if shows_room else {}
    names = in_order(held.keys() | {bar.slot for bar in room.bars})
    return [_here(slot, held[slot], free.get(slot, 0) if shows_room else None, limits) for slot in names]


def _here(slot: str, held: int, free: int | None, limits: OwnLimits) -> Here:
    left, strictest = limits.remaining(slot), limits.strictest.get(slot)
    if left is None or (free is not None and free < left):
        return Here(slot, held, free)
    return Here(slot, held, left, strictest.label if strictest else "")
