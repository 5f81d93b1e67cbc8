"""How much of each slot a kernel may have, how much of that there is now, and whose limit it is.

The numbers are those of ``availability``, of the image and of the site: a form that shows them promises what the door
and the scheduler will do, and counts nothing by itself.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import lcm

from backendai.catalog.models import Image
from backendai.cluster.models import ResourceGroup
from backendai.cluster.site import site_settings
from backendai.cluster.slot_types import in_order, look_of
from backendai.compute.services.check_amounts import minimum_of
from backendai.core.slots import MILLI, Slots, is_accelerator
from backendai.planning.allowances import least
from backendai.planning.availability import Availability
from backendai.planning.snapshot import rules_of
from backendai.scheduler.devices import STEP, is_fractional, is_unique
from backendai.scheduler.room import Room
from backendai.scheduler.snapshot import AgentView

IMAGE, SITE, AGENT = "image", "site", "agent"  # beside the scopes of policies


@dataclass(frozen=True, slots=True)
class Bound:
    """An amount in thousandths, and whose limit it is: the image's, the site's, an agent's, or a policy's scope."""

    amount: int
    kind: str
    name: str = ""


@dataclass(frozen=True, slots=True)
class Shape:
    """What the amounts are for: so many kernels, on one agent or on several, perhaps on one that is named."""

    kernels: int = 1
    multi_node: bool = False
    agent: str = ""


ALONE = Shape()


@dataclass(frozen=True, slots=True)
class Amount:
    """One slot of one kernel, all in thousandths. ``maximum``: None is unlimited; ``quota``: what the strictest policy
    leaves (None: unlimited). ``free``: what the group's agents have together, ``on_one`` what a single one has.
    ``remaining``: what could start now, of this slot alone. ``is_offered``: the group has it and the image can use it.
    """

    slot: str
    minimum: Bound
    maximum: Bound | None
    quota: Bound | None
    free: int
    on_one: int
    remaining: int
    step: int
    is_offered: bool = True

    @property
    def is_required(self) -> bool:
        """Whether there is no launch without it."""
        return self.minimum.amount > 0


def amounts_of(found: Availability, image: Image, shape: Shape = ALONE) -> list[Amount]:
    """Return every slot that a kernel of the image may be asked for here, cores and memory first, and those that it
    demands in vain. No query beyond the settings of the site."""
    agents = [agent for agent in found.agents if shape.agent in ("", agent.name)]
    room = _GroupRoom([agent for agent in agents if image.architecture in ("", agent.architecture)], found.group)
    place = _Place(found, image, shape, room, minimum_of(image), site_settings().container_caps)
    offered = {"cpu", "mem"} | {name for name in room.slots if look_of(name).is_enabled and image.can_use(name)}
    return [_amount(name, place, is_offered=name in offered) for name in in_order(offered | set(place.minimum))]


def kernels_now(found: Availability, asked: Mapping[str, int]) -> tuple[int, int]:
    """Return how many kernels with these amounts could start now: on a single agent, and on all together."""
    left = [(found.remaining.get(name), wanted) for name, wanted in asked.items() if wanted]
    quota = least(remaining // wanted for remaining, wanted in left if remaining is not None)
    on_each = [_times(room, asked) for room in _GroupRoom(found.agents, found.group).serving]
    one, together = max(on_each, default=0), sum(on_each)
    return (one, together) if quota is None else (min(one, quota), min(together, quota))


class _GroupRoom:
    """The agents that count for a launch: what they have when empty, also the silent ones, and what they have now."""

    def __init__(self, agents: Sequence[AgentView], group: ResourceGroup) -> None:
        self._agents = agents
        rooms = [Room(agent, order, rules_of(group)) for order, agent in enumerate(agents)]
        self.serving = [room for room in rooms if room.alive and room.schedulable and room.has_kernels_left(1)]
        self.slots = {name for agent in agents for name in agent.capacity}

    def largest(self, slot: str) -> int | None:
        """Return the most that an agent has when it is empty, a silent one too; None without agents."""
        return max((agent.capacity[slot] for agent in self._agents), default=None)

    def free(self, slot: str) -> list[int]:
        """Return what each agent has left that answers and takes more."""
        return [max(0, room.free.get(slot, 0)) for room in self.serving]


@dataclass(frozen=True, slots=True)
class _Place:
    found: Availability
    image: Image
    shape: Shape
    room: _GroupRoom
    minimum: Slots
    caps: Slots


def _amount(slot: str, place: _Place, *, is_offered: bool) -> Amount:
    shape, step = place.shape, _step(slot, place.shape)
    maximum = min(_limits(slot, place), key=lambda bound: bound.amount, default=None)
    quota = _quota(slot, place)
    free = place.room.free(slot)
    on_one, together = max(free, default=0), sum(free)
    now = [on_one, together // shape.kernels] if shape.multi_node else [on_one // shape.kernels]
    bounds = [*now, *(bound.amount for bound in (quota, maximum) if bound)]
    return Amount(
        slot=slot,
        minimum=Bound(-(-place.minimum[slot] // step) * step, IMAGE, place.image.display_name),
        maximum=maximum and Bound(_floor(maximum.amount, step), maximum.kind, maximum.name),
        quota=quota,
        free=together,
        on_one=on_one,
        remaining=_floor(min(bounds), step),
        step=step,
        is_offered=is_offered,
    )


def _limits(slot: str, place: _Place) -> Iterator[Bound]:
    """Yield every limit that holds for one kernel, those first that nobody here can lift."""
    image, shape = place.image, place.shape
    if slot in image.maximum_slots:
        yield Bound(image.maximum_slots[slot], IMAGE, image.display_name)
    if slot in place.caps:
        yield Bound(place.caps[slot], SITE)
    if is_unique(slot):
        yield Bound(MILLI, IMAGE, image.display_name)
    largest = place.room.largest(slot)
    if largest is not None:
        together = 1 if shape.multi_node else shape.kernels
        yield Bound(largest // together, AGENT, shape.agent or place.found.group.name)
    for holder in place.found.holders:
        limit = holder.slots[slot].limit if slot in holder.slots else None
        if limit is not None:
            yield Bound(limit // shape.kernels, holder.scope, holder.name)


def _quota(slot: str, place: _Place) -> Bound | None:
    """Return what the strictest holder leaves to one kernel; None when nobody limits it."""
    left = [
        Bound(remaining // place.shape.kernels, holder.scope, holder.name)
        for holder in place.found.holders
        if slot in holder.slots and (remaining := holder.slots[slot].remaining) is not None
    ]
    return min(left, key=lambda bound: bound.amount, default=None)


def _step(slot: str, shape: Shape) -> int:
    """Return the smallest step: whole devices, and whole accelerators for each of several kernels."""
    step = look_of(slot).quantum
    if is_fractional(slot):
        step = lcm(step, STEP)
    elif slot.endswith(".device") or is_unique(slot):
        step = lcm(step, MILLI)
    return lcm(step, MILLI) if is_accelerator(slot) and shape.kernels > 1 else step


def _floor(amount: int, step: int) -> int:
    return amount // step * step


def _times(room: Room, asked: Mapping[str, int]) -> int:
    """Return how many kernels of these amounts find room on one agent."""
    times = min((max(0, room.free.get(name, 0)) // wanted for name, wanted in asked.items() if wanted), default=0)
    return times if room.max_kernels is None else min(times, max(0, room.max_kernels - room.kernels))
