"""Suggests changes that would start a waiting session now: smaller amounts, or another resource group.

Every suggestion is verified with ``decide``.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from uuid import UUID

from backendai.base.core.messages import Message
from backendai.base.core.slots import MILLI, Slots, amount_in_words, format_amount, is_size
from backendai.scheduler.decide import decide
from backendai.scheduler.plan import Placement, Plan
from backendai.scheduler.snapshot import AgentView, Holder, LimitView, SessionView, Snapshot

_MOST_TRIED = 4
_STEPS = {"cpu": MILLI // 10, "cuda.shares": MILLI // 100}


@dataclass(frozen=True, slots=True)
class Suggestion:
    """A change with which the session starts now. ``resources``: the new amounts per kernel, None if they are
    unchanged."""

    group: str
    resources: Slots | None
    agents: tuple[str, ...]
    message: str


def suggest(
    snapshot: Snapshot, session: SessionView, others: Sequence[Snapshot], *, least: Slots, plan: Plan | None = None
) -> list[Suggestion]:
    """Return changes that would start the session now, the smallest first. Empty if the session starts anyway or no
    change helps.

    ``session``: a pending session of the snapshot. ``others``: snapshots of other groups that it may use. ``least``:
    the minimum of each kernel. ``plan``: the snapshot's plan, if known. Each try costs a whole ``decide``.
    """
    plan = plan or decide(snapshot)
    if _placement(plan, session.id):
        return []
    return [*_with_less(snapshot, session, plan, least), *_elsewhere(others, session)]


def _with_less(snapshot: Snapshot, session: SessionView, plan: Plan, least: Slots) -> Iterator[Suggestion]:
    """Yield the smallest reduction of the request with which the session starts now. Only for single-node sessions with
    equal kernels."""
    if session.multi_node or len({kernel.slots for kernel in session.kernels}) != 1:
        return
    if not snapshot.rules.backfill and _code(plan, session.id) == "behind-in-queue":
        return  # in a strict queue a smaller session would be held back, too
    for amounts in _reductions(snapshot, session, plan, least):
        kernels = tuple(kernel._replace(slots=amounts) for kernel in session.kernels)
        placed = _tried(snapshot, session, session._replace(kernels=kernels))
        if placed:
            agents = _names(snapshot, placed)
            message = Message(
                "With {amounts} it starts now on {agents}.",
                amounts=difference(session.kernels[0].slots, amounts),
                agents=agents,
            )
            yield Suggestion(snapshot.group, amounts, agents, message)
            return


def _reductions(snapshot: Snapshot, session: SessionView, plan: Plan, least: Slots) -> list[Slots]:
    """Return smaller amounts per kernel that one agent has free and the limits allow, at most ``_MOST_TRIED``. The
    smallest loss comes first."""
    wanted = session.kernels[0].slots
    count = len(session.kernels)
    free = _free_after(snapshot, plan)
    allowed = _allowed(snapshot, session.holder, plan)
    found: dict[Slots, int] = {}
    for agent in snapshot.agents:
        if not _may_take(agent, session):
            continue
        for room in _rooms(agent, free[agent.id]):
            most = {name: min(room[name], allowed.get(name, room[name])) // count for name in wanted}
            amounts = rounded(wanted, most)
            # Every requested slot stays, as programs would fail without their GPU.
            enough = all(amounts[name] >= max(least[name], 1) for name in wanted)
            if amounts != wanted and enough:
                found[amounts] = _loss(wanted, amounts)
    return sorted(found, key=lambda amounts: (found[amounts], tuple(amounts.items())))[:_MOST_TRIED]


def _elsewhere(others: Sequence[Snapshot], session: SessionView) -> Iterator[Suggestion]:
    moved = session._replace(attempts=0, overtaken_since=None, avoid_agents=frozenset(), image_build=None)
    for other in others:
        placed = _tried(other, None, moved)
        if placed:
            agents = _names(other, placed)
            yield Suggestion(
                other.group, None, agents, Message("In resource group {group} it starts now.", group=other.group)
            )


def _tried(snapshot: Snapshot, old: SessionView | None, new: SessionView) -> Placement | None:
    pending = tuple(each for each in snapshot.pending if old is None or each.id != old.id)
    return _placement(decide(replace(snapshot, pending=(*pending, new))), new.id)


def _code(plan: Plan, session_id: UUID) -> str:
    return next((wait.reason.code for wait in plan.waits if wait.session_id == session_id), "")


def _placement(plan: Plan, session_id: UUID) -> Placement | None:
    return next((each for each in plan.placements if each.session_id == session_id), None)


def _names(snapshot: Snapshot, placed: Placement) -> tuple[str, ...]:
    chosen = set(placed.kernels.values())
    return tuple(sorted(agent.name for agent in snapshot.agents if agent.id in chosen))


def _free_after(snapshot: Snapshot, plan: Plan) -> Mapping[UUID, Slots]:
    """Return the free amounts after the plan, by agent id."""
    amounts = {kernel.id: kernel.slots for session in snapshot.pending for kernel in session.kernels}
    free = {agent.id: agent.free for agent in snapshot.agents}
    for placement in plan.placements:
        for kernel_id, agent_id in placement.kernels.items():
            free[agent_id] -= amounts[kernel_id]
    return free


def _allowed(snapshot: Snapshot, holder: Holder, plan: Plan) -> dict[str, int]:
    """Return how much of each slot the holder's limits allow after the plan; unlimited slots are missing."""
    placed = {placement.session_id for placement in plan.placements}
    starting = [session for session in snapshot.pending if session.id in placed]
    left: dict[str, int] = {}
    for key in holder.keys:
        limit = snapshot.limits.get(key)
        if limit is None:
            continue
        used = limit.used + _total(session for session in starting if key in session.holder.keys)
        for name in _limited(limit, snapshot):
            left[name] = min(left.get(name, limit.slots[name]), max(0, limit.slots[name] - used[name]))
    return left


def _limited(limit: LimitView, snapshot: Snapshot) -> set[str]:
    names = set(limit.slots) | limit.forbidden
    if limit.unnamed_limited:
        names.update(name for agent in snapshot.agents for name in agent.capacity)
    return names


def _total(sessions: Iterable[SessionView]) -> Slots:
    return sum((session.total for session in sessions), Slots())


def _may_take(agent: AgentView, session: SessionView) -> bool:
    architectures = {kernel.architecture for kernel in session.kernels} - {"", agent.architecture}
    return agent.alive and agent.schedulable and not architectures


def _rooms(agent: AgentView, free: Slots) -> Iterator[Mapping[str, int]]:
    """Yield the agent's free amounts. Then yields them again, limited to one device of each slot, if that is less."""
    yield free
    largest: dict[str, int] = {}
    for device in agent.devices:
        largest[device.slot] = max(largest.get(device.slot, 0), device.capacity - device.taken)
    if any(amount < free[name] for name, amount in largest.items()):
        yield Slots({**free, **{name: min(amount, free[name]) for name, amount in largest.items()}})


def rounded(wanted: Slots, most: Mapping[str, int]) -> Slots:
    """Return the wanted amounts, reduced to the free ones and rounded down to usual steps."""
    cut = {}
    for name, amount in wanted.items():
        step = MILLI * 2**20 if is_size(name) else _STEPS.get(name, MILLI)
        cut[name] = amount if most[name] >= amount else max(0, most[name]) // step * step
    return Slots(cut)


def _loss(wanted: Slots, amounts: Slots) -> int:
    """Return the size of a reduction: the missing share of each requested amount in thousandths, summed over slots."""
    return sum((amount - amounts[name]) * 1000 // amount for name, amount in wanted.items())


def difference(wanted: Slots, amounts: Slots) -> str:
    """Return smaller amounts as text, each beside the wanted one."""
    changed = [
        Message(
            "{amounts} instead of {wanted}",
            amounts=amount_in_words(name, amounts[name]),
            wanted=format_amount(name, amount),
        )
        for name, amount in wanted.items()
        if amounts[name] != amount
    ]
    return Message.joined(changed, ", ")
