"""Bars of the usage and limits of a user or project.

The numbers come from ``planning.allowances``, the ledger, and the free resources of a group.
"""

from __future__ import annotations

from dataclasses import dataclass

from django.utils.translation import gettext as _

from backendai.base.core.slots import Slots, format_amount, limit_text
from backendai.domain.accounts.models import Project, ResourcePolicy, User
from backendai.domain.accounts.policies.applicable import PROJECT, USER, Limited, key_of
from backendai.domain.cluster.slot_types import in_order
from backendai.domain.compute.services.requests.limits import limit_views
from backendai.domain.compute.services.status.ledger import held_in_groups
from backendai.domain.planning.amounts import allowances
from backendai.domain.planning.amounts.allowances import Allowance, HolderLimits, OwnLimits
from backendai.portal.web.dashboard.resources import RoomBars, name_of_slot


@dataclass(frozen=True, slots=True)
class Gauge:
    """A bar of one slot or of sessions: usage, limit, and the holder of the limit (empty: none)."""

    slot: str  # empty: sessions
    allowance: Allowance
    holder: str = ""

    @property
    def name(self) -> str:
        """The name of the slot, or ``Sessions``."""
        return name_of_slot(self.slot) if self.slot else _("Sessions")

    @property
    def percent(self) -> int | None:
        """The used share of the limit, 0 to 100; None without a limit."""
        one = self.allowance
        if one.limit is None:
            return None
        return min(100, round(100 * one.used / one.limit)) if one.limit else 100

    @property
    def used(self) -> str:
        """The used amount as text."""
        return self._text(self.allowance.used)

    @property
    def limit(self) -> str:
        """The limit as text."""
        return limit_text(self.allowance.limit, self.slot)

    @property
    def left(self) -> str:
        """The remaining amount as text."""
        return limit_text(self.allowance.remaining, self.slot)

    @property
    def pending(self) -> str:
        """The amount of pending sessions as text; empty if there are none."""
        return self._text(self.allowance.pending) if self.allowance.pending else ""

    def _text(self, amount: int) -> str:
        return format_amount(self.slot, amount) if self.slot else str(amount)


@dataclass(frozen=True, slots=True)
class Here:
    """One slot in one resource group, in thousandths.

    ``held``: the amount that the user holds there; ``more``: the further amount available now (None: unlimited).
    ``holder``: the holder whose limit is exhausted; empty if the group is full, or there is no limit.
    """

    slot: str
    held: int
    more: int | None
    holder: str = ""

    @property
    def name(self) -> str:
        """The name of the slot."""
        return name_of_slot(self.slot)

    @property
    def held_text(self) -> str:
        """The held amount as text."""
        return format_amount(self.slot, self.held)

    @property
    def more_text(self) -> str:
        """The further available amount as text."""
        return limit_text(self.more, self.slot)

    @property
    def percent(self) -> int | None:
        """The held share of the held and available amount, 0 to 100; None if that is unlimited."""
        if self.more is None:
            return None
        reach = self.held + self.more
        return round(100 * self.held / reach) if reach else 100


def tightest(limits: OwnLimits) -> list[Gauge]:
    """Return a bar for sessions and for each slot, with the strictest limit.

    Without a limit it shows the user's own usage.
    """
    user = next(holder for holder in limits.holders if holder.scope == "user")
    of_sessions = limits.strictest_sessions
    gauges = [Gauge("", (of_sessions or user).sessions, of_sessions.label if of_sessions else "")]
    for slot, holder in limits.strictest.items():
        gauges.append(Gauge(slot, (holder or user).slots[slot], holder.label if holder else ""))
    return gauges


def gauges_of(holder: HolderLimits) -> list[Gauge]:
    """Return the bars of one holder, sessions first."""
    return [Gauge("", holder.sessions), *(Gauge(slot, one) for slot, one in holder.slots.items())]


def gauges_of_holder(holder: User | Project) -> list[Gauge]:
    """Return a bar for the sessions, and for each slot that is limited or held; two queries."""
    scope = USER if isinstance(holder, User) else PROJECT
    limited = Limited(key_of(scope, holder.pk), scope, str(holder), holder.policy or ResourcePolicy(name="none"))
    [view] = limit_views([limited]).values()
    return gauges_of(allowances.holder_limits(view, allowances.in_order({*view.slots, *view.used})))


def own_use_in(room: RoomBars, user: User, limits: OwnLimits, *, shows_room: bool) -> list[Here]:
    """Return the amounts of the user in a group, by slot, and the further available amounts.

    These are limited by the strictest policy, and with ``shows_room`` by the free resources, which are otherwise
    hidden. One query.
    """
    held = held_in_groups(user.pk).get(room.group.pk, Slots())
    free = {bar.slot: bar.free for bar in room.bars} if shows_room else {}
    names = in_order(held.keys() | {bar.slot for bar in room.bars})
    return [_here(slot, held[slot], free.get(slot, 0) if shows_room else None, limits) for slot in names]


def _here(slot: str, held: int, free: int | None, limits: OwnLimits) -> Here:
    left, strictest = limits.remaining(slot), limits.strictest.get(slot)
    if left is None or (free is not None and free < left):
        return Here(slot, held, free)
    return Here(slot, held, left, strictest.label if strictest else "")
