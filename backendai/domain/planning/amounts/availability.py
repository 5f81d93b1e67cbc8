"""Computes the amounts that policies leave to a user in a resource group, and the presets that fit now. For pages and
REST."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

from django.db.models import QuerySet

from backendai.base.core.slots import Slots
from backendai.base.db.per_request import once
from backendai.domain.accounts.models import KeyPair, Project, User
from backendai.domain.accounts.policies.applicable import DOMAIN, KEY_PAIR, PROJECT, USER, Limited, key_of
from backendai.domain.catalog.models import ResourcePreset
from backendai.domain.cluster.capabilities import capabilities_in, lacking_cluster_files
from backendai.domain.cluster.models import ResourceGroup
from backendai.domain.compute.services.requests.limits import key_pair_of, limit_views, limits_on
from backendai.domain.planning.agents import AgentRow, read_agent_rows, read_agents
from backendai.domain.planning.amounts.allowances import HolderLimits, holder_limits, in_order, least
from backendai.domain.planning.snapshot import rules_of
from backendai.scheduler.capacity.agent_states import AgentStates
from backendai.scheduler.choose import best
from backendai.scheduler.demand import demand_of
from backendai.scheduler.explaining.outlook import kinds_of, outlook
from backendai.scheduler.explaining.shortfall import refusal_of
from backendai.scheduler.limits import Limits
from backendai.scheduler.plan import Reason
from backendai.scheduler.snapshot import AgentView, Holder, KernelView, LimitView, Rules, SessionView


def _presets(user: Any) -> QuerySet[Any, Any]:
    return ResourcePreset.objects.visible_to(user).select_related("resource_group")


@dataclass(frozen=True, slots=True)
class GroupAmounts:
    """Totals over the group's reachable agents that take sessions. ``free``: the sum over agents. ``max_per_agent``:
    the largest capacity of one agent. ``max_free``: the most that one agent has free."""

    agents: int
    total: Slots
    used: Slots
    free: Slots
    max_per_agent: Slots
    max_free: Slots


@dataclass(frozen=True, slots=True)
class PresetFit:
    """A preset, and why a session with it could not start now (None: it could)."""

    preset: ResourcePreset
    reason: Reason | None


@dataclass(frozen=True, slots=True)
class Availability:
    """The amounts that policies leave to a user in a project, and the amounts of a group. ``remaining``: by slot, the
    amount that the strictest holder leaves (None: unlimited). ``limited``: the holders with a policy. ``agents``: the
    group's registered agents; ``rows``: their columns, in that order. ``without_cluster_files``: the number of those in
    ``amounts`` whose kernels get no host files and no SSH to each other."""

    project: Project
    group: ResourceGroup
    holders: Sequence[HolderLimits]
    remaining: Mapping[str, int | None]
    remaining_sessions: int | None
    amounts: GroupAmounts
    presets: Sequence[PresetFit]
    limited: Sequence[Limited]
    agents: Sequence[AgentView]
    rows: Sequence[AgentRow]
    without_cluster_files: int


def availability(user: User, project: Project, group: ResourceGroup, key_pair: KeyPair | None = None) -> Availability:
    """Return the amounts that policies leave to this user in this project, and the amounts of the group.

    Limits of the project's domain are included. Without ``key_pair``, the limits of the user's default key pair apply.
    At most nine queries.
    """
    key_pair = key_pair or key_pair_of(user)
    limited = limits_on(user, project, key_pair)
    views = limit_views(limited)
    rows = read_agent_rows(group)
    agents = read_agents(group, rows, {}, ())
    presets = presets_of(user, group)
    names = _slot_names(views.values(), agents, presets)
    holders = [holder_limits(view, names) for view in views.values()]
    reasons = obstacles(
        [preset.amounts for preset in presets],
        agents,
        group=group.name,
        rules=rules_of(group),
        limits=Limits(views),
        holder=holder_of(user, project, key_pair),
    )
    return Availability(
        project=project,
        group=group,
        holders=holders,
        remaining={name: least(holder.slots[name].remaining for holder in holders) for name in names},
        remaining_sessions=least(holder.sessions.remaining for holder in holders),
        amounts=_amounts(agents),
        presets=[PresetFit(preset, reason) for preset, reason in zip(presets, reasons, strict=True)],
        limited=limited,
        agents=agents,
        rows=rows,
        without_cluster_files=lacking_cluster_files(
            capabilities_in(row.capabilities, row.backend)
            for row, agent in zip(rows, agents, strict=True)
            if _takes_sessions(agent)
        ),
    )


def holder_of(user: User, project: Project, key_pair: KeyPair | None) -> Holder:
    """Return the holders of a launch by this user: the keys of user, key pair, project and domain."""
    return Holder(
        user=key_of(USER, user.pk),
        key_pair=key_of(KEY_PAIR, key_pair.pk) if key_pair else "",
        project=key_of(PROJECT, project.pk),
        domain=key_of(DOMAIN, project.domain_id),
    )


def presets_open(user: User) -> Sequence[ResourcePreset]:
    """Return the presets of all groups that the user may see, sorted for display. Read once per request."""
    return once(("presets-open", user.pk), lambda: list(_presets(user)))


def presets_of(user: User, group: ResourceGroup) -> list[ResourcePreset]:
    """Return the presets for this group that the user may see. Those of the group replace global ones by name."""
    visible = [preset for preset in presets_open(user) if preset.resource_group_id in (None, group.pk)]
    own = {preset.name for preset in visible if preset.resource_group_id}
    return [preset for preset in visible if preset.resource_group_id or preset.name not in own]


def _slot_names(
    views: Iterable[LimitView], agents: Iterable[AgentView], presets: Iterable[ResourcePreset]
) -> list[str]:
    """Return every slot that a limit, an agent or a preset names, cpu and mem first."""
    names = {"cpu", "mem"}
    for view in views:
        names |= set(view.slots) | view.forbidden | set(view.used)
    for agent in agents:
        names |= set(agent.capacity)
    for preset in presets:
        names |= set(preset.amounts)
    return in_order(names)


def _takes_sessions(agent: AgentView) -> bool:
    return agent.alive and agent.schedulable


def _amounts(agents: Iterable[AgentView]) -> GroupAmounts:
    """Return the totals of the reachable agents that take sessions, as plain numbers for speed."""
    number = 0
    total, used, free, most, most_free = (defaultdict[str, int](int) for _ in range(5))
    for agent in agents:
        if not _takes_sessions(agent):
            continue
        number += 1
        taken = dict(agent.occupied)
        for name, amount in taken.items():
            used[name] += amount
        for name, amount in agent.capacity.items():
            left = max(0, amount - taken.get(name, 0))
            total[name] += amount
            free[name] += left
            most[name] = max(amount, most[name])
            most_free[name] = max(left, most_free[name])
    return GroupAmounts(number, Slots(total), Slots(used), Slots(free), Slots(most), Slots(most_free))


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
    states = AgentStates(everybody, replace(rules, selection=Rules().selection))

    def obstacle(slots: Slots) -> Reason | None:
        session = SessionView(_NOBODY, "", _EVER, 0, (KernelView(_NOBODY, slots),), holder=holder)
        demand = demand_of(session)
        reason = demand.flaw or outlook(demand, kinds, group)
        reason = reason or limits.sessions_reason(holder) or limits.slots_reason(holder, demand.requests[0].items)
        if reason or best(demand.requests[0], session, states):
            return reason
        return refusal_of(demand.requests[0], states, 0, 1).reason

    return [obstacle(slots) for slots in asked]
