"""Checks whether one kernel with given amounts could start now, if no other session waited."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from uuid import UUID

from backendai.base.core.slots import Slots
from backendai.scheduler.capacity.agent_states import AgentStates
from backendai.scheduler.choose import best
from backendai.scheduler.demand import demand_of
from backendai.scheduler.explaining.outlook import kinds_of, outlook
from backendai.scheduler.explaining.shortfall import refusal_of
from backendai.scheduler.limits import Limits
from backendai.scheduler.plan import Reason
from backendai.scheduler.snapshot import AgentView, Holder, KernelView, Rules, SessionView

_NOBODY = UUID(int=0)
_EVER = datetime.min.replace(tzinfo=UTC)


def obstacles(
    asked: Sequence[Slots],
    agents: Iterable[AgentView],
    *,
    group: str,
    rules: Rules,
    limits: Limits,
    holder: Holder,
) -> list[Reason | None]:
    """Return for each entry of ``asked`` why one kernel with these amounts could not start now; None if it could.

    The checks, in this order: could any agent ever provide the amounts, do the holder's limits allow them, and does one
    agent have them free?
    """
    everybody = tuple(agents)
    kinds = kinds_of(everybody)
    # Only whether an agent has room matters. The default selection is used, as the group's may be invalid.
    states = AgentStates(everybody, replace(rules, selection=Rules().selection, options={}))

    def obstacle(slots: Slots) -> Reason | None:
        session = SessionView(_NOBODY, "", _EVER, 0, (KernelView(_NOBODY, slots),), holder=holder)
        demand = demand_of(session)
        reason = demand.flaw or outlook(demand, kinds, group)
        reason = reason or limits.sessions_reason(holder) or limits.slots_reason(holder, demand.requests[0].items)
        if reason or best(demand.requests[0], session, states):
            return reason
        return refusal_of(demand.requests[0], states, 0, 1).reason

    return [obstacle(slots) for slots in asked]
