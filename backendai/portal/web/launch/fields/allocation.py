"""The amounts of the launch form with their bounds, the free resources, and the sources of the limits."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from backendai.base.core.errors import UserError
from backendai.base.core.slots import MILLI, Slots
from backendai.base.texts.translation import gettext as _
from backendai.domain.accounts.models import User
from backendai.domain.accounts.policies.applicable import strictest
from backendai.domain.catalog.models import Image
from backendai.domain.cluster.groups.session_defaults import parse_session_defaults
from backendai.domain.cluster.models import ResourceGroup
from backendai.domain.cluster.site import site_settings
from backendai.domain.compute.services.requests.amounts import automatic_shm, usual_shm
from backendai.domain.compute.services.requests.check import LARGEST_CLUSTER
from backendai.domain.planning.amounts.availability import Availability
from backendai.domain.planning.amounts.bounds import Amount, kernels_now
from backendai.portal.web.launch.fields.allocation_fields import CUSTOM, MINIMUM, AllocationFields
from backendai.portal.web.launch.fields.allocation_words import Words
from backendai.portal.web.launch.fields.presets import Variant, mark_obstacles, split_size
from backendai.portal.web.launch.resources import SIZES, LaunchResources, ground_of, may_see_room
from backendai.portal.web.session.idle import launch_rules, short_rules
from backendai.scheduler.snapshot import AgentView


@dataclass(frozen=True, slots=True)
class Row:
    """One amount: its field, and the texts about its bounds (None: unknown)."""

    slot: str
    bound: Any
    number: str = ""
    unit: str = ""
    is_offered: bool = True
    words: Words | None = None

    @property
    def is_required(self) -> bool:
        """Whether a launch needs this amount."""
        return bool(self.words and self.words.amount.is_required)


@dataclass(frozen=True, slots=True)
class SharedMemory:
    """The field of the shared memory.

    ``usual``: the default as JSON pairs; from so many bytes of memory on, so many bytes of shared memory.
    """

    row: Row
    usual: str
    automatic: int | None  # bytes; None while the memory cannot be read
    is_tight: bool  # programs would have less than twice as much


@dataclass(frozen=True, slots=True)
class KernelRoom:
    """The largest number of kernels, and the source of that limit.

    Also has the numbers that fit now on one agent and on all (None: hidden).
    ``without_files``: on which agents these kernels get no host files and no SSH to each other: all, some, or none
    (empty).
    """

    most: int = LARGEST_CLUSTER
    whose: str = ""
    on_one: int | None = None
    together: int | None = None
    without_files: str = ""


@dataclass(frozen=True, slots=True)
class AgentChoice:
    """An agent to choose, with its free resources (None: it takes no sessions now)."""

    name: str
    free: Slots | None


@dataclass(frozen=True, slots=True)
class IdleRules:
    """The rules of idle checkers for such a session: in one line (empty: none), and in a sentence each."""

    short: str = ""
    sentences: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class Allocation:
    """The whole contents of the form's part about amounts."""

    cpu: Row
    mem: Row
    accelerators: Sequence[Row]
    shm: SharedMemory
    group: str = ""
    agents: Sequence[AgentChoice] = ()
    kernels: KernelRoom = KernelRoom()
    minimum: Variant | None = None
    none_because: str = ""  # why there is no accelerator to choose
    idle: IdleRules = IdleRules()

    @property
    def rows(self) -> list[Row]:
        """The rows of all amounts with bounds."""
        return [self.cpu, self.mem, *self.accelerators]


def allocation_of(form: AllocationFields, owner: User, actor: User) -> Allocation:
    """Return the amounts for the form's current project and group, and mark which of its presets fit there."""
    ground = ground_of(form, owner, actor)
    cpu, mem, *others = (_row(form, slot) for slot in (*SIZES, *form.accelerators))
    if ground is None:
        mark_obstacles(form.presets, form.place()[1], {})
        return Allocation(cpu, mem, others, _shared_memory(form, None))
    found, words = ground.found, ground.words
    mark_obstacles(form.presets, found.group.name, ground.obstacles)
    return Allocation(
        cpu=_with_words(cpu, form, words),
        mem=_with_words(mem, form, words),
        accelerators=[_with_words(row, form, words) for row in others],
        shm=_shared_memory(form, found.group, ground.image),
        group=found.group.name,
        agents=[_agent_choice(agent) for agent in found.agents] if site_settings().agent_select else (),
        kernels=_kernel_room(form, ground, tells_room=may_see_room(actor)),
        minimum=Variant("", Slots({slot: amount.minimum.amount for slot, amount in ground.amounts.items()})),
        none_because=_none_because(found, ground.image, ground.amounts),
        idle=_idle_rules(form, found),
    )


def _row(form: AllocationFields, slot: str) -> Row:
    name = slot if slot in (*SIZES, "shm") else f"slot.{slot}"
    text = form.typed(name)
    number, unit = split_size(text) if slot in ("mem", "shm") and text else (text, "g")
    return Row(slot, form[name], number, unit, is_offered=slot in (*SIZES, "shm"))


def _with_words(row: Row, form: AllocationFields, words: Mapping[str, Words]) -> Row:
    known = words.get(row.slot)
    if known is None:
        return row
    value = known.value_of(form.typed(row.bound.name))
    return replace(row, is_offered=known.amount.is_offered, words=replace(known, value=value))


def _agent_choice(agent: AgentView) -> AgentChoice:
    if not (agent.alive and agent.schedulable):
        return AgentChoice(agent.name, None)
    return AgentChoice(agent.name, Slots({name: max(0, agent.free[name]) for name in agent.capacity}))


def _idle_rules(form: AllocationFields, found: Availability) -> IdleRules:
    where = str(form["session_type"].value()), found.group.pk, found.project.pk
    return IdleRules(short_rules(*where), launch_rules(*where))


def _kernel_room(form: AllocationFields, ground: LaunchResources, *, tells_room: bool) -> KernelRoom:
    found, without = ground.found, _without_files(ground)
    limit = strictest(found.limited, "max_kernels_per_session")
    most, whose = (limit[0], limit[1].label) if limit and limit[0] < LARGEST_CLUSTER else (LARGEST_CLUSTER, "")
    asked = _asked(form, found.group.name)
    if asked is None or not tells_room:
        return KernelRoom(most, whose, without_files=without)
    on_one, together = kernels_now(found, asked, ground.machines)
    return KernelRoom(most, whose, min(on_one, most), min(together, most), without)


def _without_files(ground: LaunchResources) -> str:
    without = ground.found.without_cluster_files
    if ground.shape.kernels < 2 or not without:
        return ""
    return "all" if without == ground.found.amounts.agents else "some"


def _asked(form: AllocationFields, group: str) -> Slots | None:
    """Return the amounts of a kernel in the form's current state; None if they are invalid."""
    preset = str(form["preset"].value() or CUSTOM)
    choice = next((each for each in form.presets if each.name == preset), None)
    if choice is not None:
        return choice.slots_in(group)
    texts = {slot: form.typed(slot if slot in SIZES else f"slot.{slot}") for slot in (*SIZES, *form.accelerators)}
    try:
        return None if preset == MINIMUM else Slots.parse({slot: text for slot, text in texts.items() if text})
    except UserError:
        return None


def _shared_memory(form: AllocationFields, group: ResourceGroup | None, image: Image | None = None) -> SharedMemory:
    row = _row(form, "shm")
    usual = parse_session_defaults(group.session_defaults).shm if group else ""
    usual = (image.preferred_shm if image else "") or usual
    pairs = json.dumps(usual_shm(usual))
    try:
        memory = Slots.parse({"mem": form.typed("mem") or "0"})["mem"] // MILLI
        manual = Slots.parse({"shm": form.typed("shm") or "0"})["shm"] // MILLI
    except UserError:
        return SharedMemory(row, pairs, None, is_tight=False)
    shm = manual or automatic_shm(memory, usual)
    return SharedMemory(row, pairs, automatic_shm(memory, usual), is_tight=0 < memory - shm < 2 * shm)


def _none_because(found: Availability, image: Image, amounts: Mapping[str, Amount]) -> str:
    """Return why the form offers no accelerator; empty if it does."""
    if any(slot not in SIZES for slot, amount in amounts.items() if amount.is_offered):
        return ""
    there = {name for agent in found.agents for name, amount in agent.capacity.items() if amount} - set(SIZES)
    if there and image.accelerators is not None:
        return _("%(name)s supports none of the accelerators in %(group)s.") % {
            "name": image.display_name,
            "group": found.group.name,
        }
    return _("Resource group %(group)s has none.") % {"group": found.group.name}
