"""Computes bounds and availability of each slot of a kernel for the launch form.

The numbers come from ``availability``, the image and the site, so the form agrees with the validator and the scheduler.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import lcm

from backendai.base.core.slots import MILLI, Slots, is_accelerator
from backendai.domain.catalog.models import Image
from backendai.domain.cluster.site import site_settings
from backendai.domain.cluster.slot_types import in_order, look_of
from backendai.domain.compute.services.requests.amounts import minimum_of
from backendai.domain.planning.agents import lacking_image
from backendai.domain.planning.amounts.allowances import least
from backendai.domain.planning.amounts.availability import Availability
from backendai.domain.planning.snapshot import rules_of
from backendai.scheduler.capacity.agent_state import AgentState
from backendai.scheduler.capacity.devices import STEP, is_fractional, is_unique
from backendai.scheduler.snapshot import AgentView, Rules

IMAGE, SITE, AGENT = "image", "site", "agent"  # origins of a bound, besides the scopes of policies


@dataclass(frozen=True, slots=True)
class Bound:
    """An amount in thousandths, and where it comes from: the image, the site, an agent, or a policy's scope."""

    amount: int
    kind: str
    name: str = ""


@dataclass(frozen=True, slots=True)
class Shape:
    """The shape of a launch: the number of kernels, whether they may go to several agents, and the designated agent, if
    any."""

    kernels: int = 1
    multi_node: bool = False
    agent: str = ""


ALONE = Shape()


@dataclass(frozen=True, slots=True)
class Amount:
    """Bounds of one slot of one kernel, in thousandths.

    ``maximum``: None means unlimited. ``quota``: the amount that the strictest policy leaves (None: unlimited).
    ``free``: the sum over the agents; ``on_one``: the most that one agent has free. ``remaining``: the most with which
    a kernel could start now. ``is_limited``: the quota, not the machines, sets ``remaining``. ``is_offered``: the group
    has the slot and the image can use it.
    """

    slot: str
    minimum: Bound
    maximum: Bound | None
    quota: Bound | None
    free: int
    on_one: int
    remaining: int
    step: int
    is_limited: bool = False
    is_offered: bool = True

    @property
    def is_required(self) -> bool:
        """Whether a launch needs this slot."""
        return self.minimum.amount > 0


class Machines:
    """The agents of a group that can ever start an image (None: all), once as if empty and once with current
    allocations. Created once per request, with at most one query.

    An agent that does not have the image yet, as while it is built, has nothing free for it. ``left_out``: agents that
    take sessions, but not of this image.
    """

    def __init__(self, found: Availability, image: Image | None = None) -> None:
        rules, lacking = rules_of(found.group), lacking_image(found.rows, image) if image else frozenset()
        wanted = image.architecture if image else ""
        able = [
            each
            for each in found.agents
            if wanted in ("", each.architecture) and not (each.is_native and each.id in lacking)
        ]
        self._now = [each for each in able if each.id not in lacking]
        self._all = [(each, dict(each.capacity), {} if each.id in lacking else _free(each, rules)) for each in able]
        counted = {each.id for each in self._now}
        self.left_out = [each for each in found.agents if each.alive and each.schedulable and each.id not in counted]

    def use(self) -> tuple[int, Slots, Slots]:
        """Return how many agents take sessions of the image now, and their allocations and capacity together."""
        taking = [agent for agent in self._now if agent.alive and agent.schedulable]
        occupied, capacity = (
            sum(slots, Slots()) for slots in ([a.occupied for a in taking], [a.capacity for a in taking])
        )
        return len(taking), occupied, capacity

    def suitable(self, image: Image, agent: str = "") -> _Suitable:
        """Return totals over the agents that can run an image. ``agent``: only this agent is considered, if given."""
        return _Suitable(
            [
                (each, capacity, free)
                for each, capacity, free in self._all
                if agent in ("", each.name) and image.architecture in ("", each.architecture)
            ]
        )

    def kernels(self, asked: Mapping[str, int]) -> tuple[int, int]:
        """Return how many kernels with these amounts fit now: on one agent, and on all agents that can join kernels on
        other agents."""
        wanted = [(name, amount) for name, amount in asked.items() if amount]
        on_each = [(_times(agent, free, wanted), agent.joins) for agent, _, free in self._all if _serves(agent)]
        on_one = max((number for number, _ in on_each), default=0)
        return on_one, max(on_one, sum(number for number, joins in on_each if joins))


def amounts_of(
    found: Availability, image: Image, shape: Shape = ALONE, machines: Machines | None = None
) -> list[Amount]:
    """Return the bounds of each slot that a kernel of the image can request. Cores and memory come first. Slots that
    the image requires and the group lacks are included. The only queries read the site's settings, and without
    ``machines`` which agents have the image."""
    room = (machines or Machines(found, image)).suitable(image, shape.agent)
    place = _Place(found, image, shape, room, minimum_of(image), site_settings().container_caps)
    offered = {"cpu", "mem"} | {name for name in room.largest if look_of(name).is_enabled and image.can_use(name)}
    return [_amount(name, place, is_offered=name in offered) for name in in_order(offered | set(place.minimum))]


def kernels_now(found: Availability, asked: Mapping[str, int], machines: Machines | None = None) -> tuple[int, int]:
    """Return how many kernels with these amounts could start now within the user's limits: on one agent, and on all
    agents together that can form a network."""
    one, together = (machines or Machines(found)).kernels(asked)
    left = [(found.remaining.get(name), wanted) for name, wanted in asked.items() if wanted]
    quota = least(remaining // wanted for remaining, wanted in left if remaining is not None)
    return (one, together) if quota is None else (min(one, quota), min(together, quota))


class _Suitable:
    """Totals over the agents that suit a launch. ``largest``: the largest capacity by slot, including unreachable
    agents. ``free``: the sum of the free amounts of agents that take sessions; ``on_one``: the most that one of them
    has free. ``joined`` and ``on_one_joined``: the same of agents that join others."""

    def __init__(self, agents: Sequence[tuple[AgentView, dict[str, int], Mapping[str, int]]]) -> None:
        self.is_empty = not agents
        self.largest, self.free, self.on_one = (defaultdict[str, int](int) for _ in range(3))
        self.joined, self.on_one_joined = (defaultdict[str, int](int) for _ in range(2))
        for agent, capacity, free in agents:
            for name, amount in capacity.items():
                if amount > self.largest[name]:
                    self.largest[name] = amount
            if not _serves(agent):
                continue
            for name in capacity:
                left = max(0, free.get(name, 0))
                self.free[name] += left
                self.on_one[name] = max(self.on_one[name], left)
                if agent.joins:
                    self.joined[name] += left
                    self.on_one_joined[name] = max(self.on_one_joined[name], left)

    def now(self, slot: str, shape: Shape) -> int:
        """Return the most of this slot with which each kernel could start now: all of them on one agent, or each on an
        agent that joins the others."""
        whole = self.on_one[slot] // shape.kernels
        if not shape.multi_node or shape.kernels == 1:
            return whole
        return max(whole, min(self.on_one_joined[slot], self.joined[slot] // shape.kernels))


@dataclass(frozen=True, slots=True)
class _Place:
    found: Availability
    image: Image
    shape: Shape
    room: _Suitable
    minimum: Slots
    caps: Slots


def _amount(slot: str, place: _Place, *, is_offered: bool) -> Amount:
    shape, step = place.shape, _step(slot, place.shape)
    maximum = min(_limits(slot, place), key=lambda bound: bound.amount, default=None)
    quota, now = _quota(slot, place), place.room.now(slot, shape)
    bounds = [now, *(bound.amount for bound in (quota, maximum) if bound)]
    return Amount(
        slot=slot,
        minimum=Bound(-(-place.minimum[slot] // step) * step, IMAGE, place.image.display_name),
        maximum=maximum and Bound(_floor(maximum.amount, step), maximum.kind, maximum.name),
        quota=quota,
        free=place.room.free[slot],
        on_one=place.room.on_one[slot],
        remaining=_floor(min(bounds), step),
        step=step,
        is_limited=quota is not None and quota.amount <= now,
        is_offered=is_offered,
    )


def _limits(slot: str, place: _Place) -> Iterator[Bound]:
    """Yield every limit of one kernel. Limits that no policy can raise come first."""
    image, shape = place.image, place.shape
    if slot in image.maximum_slots:
        yield Bound(image.maximum_slots[slot], IMAGE, image.display_name)
    if slot in place.caps:
        yield Bound(place.caps[slot], SITE)
    if is_unique(slot):
        yield Bound(MILLI, IMAGE, image.display_name)
    if not place.room.is_empty:
        together = 1 if shape.multi_node else shape.kernels
        yield Bound(place.room.largest.get(slot, 0) // together, AGENT, shape.agent or place.found.group.name)
    for holder in place.found.holders:
        limit = holder.slots[slot].limit if slot in holder.slots else None
        if limit is not None:
            yield Bound(limit // shape.kernels, holder.scope, holder.name)


def _quota(slot: str, place: _Place) -> Bound | None:
    """Return the amount that the strictest policy leaves to one kernel; None: unlimited."""
    left = [
        Bound(remaining // place.shape.kernels, holder.scope, holder.name)
        for holder in place.found.holders
        if slot in holder.slots and (remaining := holder.slots[slot].remaining) is not None
    ]
    return min(left, key=lambda bound: bound.amount, default=None)


def _step(slot: str, shape: Shape) -> int:
    """Return the step between two amounts of a slot, in thousandths. It is the slot type's quantum, raised to 0.01 for
    shared devices and to whole units for unshared ones. With several kernels, accelerators come in whole units."""
    step = look_of(slot).quantum
    if is_fractional(slot):
        step = lcm(step, STEP)
    elif slot.endswith(".device") or is_unique(slot):
        step = lcm(step, MILLI)
    return lcm(step, MILLI) if is_accelerator(slot) and shape.kernels > 1 else step


def _floor(amount: int, step: int) -> int:
    return amount // step * step


def _free(agent: AgentView, rules: Rules) -> Mapping[str, int]:
    """Return an agent's free amounts as the scheduler counts them, limited by its devices."""
    if agent.devices:
        return AgentState(agent, 0, rules).free
    taken = dict(agent.occupied)
    return {name: amount - taken.get(name, 0) for name, amount in agent.capacity.items()}


def _serves(agent: AgentView) -> bool:
    return agent.alive and agent.schedulable and (agent.max_kernels is None or agent.kernels < agent.max_kernels)


def _times(agent: AgentView, free: Mapping[str, int], wanted: Sequence[tuple[str, int]]) -> int:
    """Return how many kernels with the amounts ``wanted`` fit on one agent."""
    times = min((max(0, free.get(name, 0)) // amount for name, amount in wanted), default=0)
    return times if agent.max_kernels is None else min(times, agent.max_kernels - agent.kernels)
