"""The amounts of the launch form as people see them: their bounds, what there is now, and who says so."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

from django.utils.translation import gettext as _

from backendai.accounts.models import User
from backendai.accounts.policies import strictest
from backendai.catalog.models import Image
from backendai.cluster.models import ResourceGroup
from backendai.cluster.session_defaults import parse_session_defaults
from backendai.cluster.site import site_settings
from backendai.compute.services.check import LARGEST_CLUSTER, place_of
from backendai.compute.services.check_amounts import automatic_shm, usual_shm
from backendai.compute.status import ClusterMode
from backendai.core.errors import UserError
from backendai.core.slots import MILLI, Slots
from backendai.planning.amounts import Amount, Machines, Shape, amounts_of, kernels_now
from backendai.planning.availability import Availability, availability
from backendai.scheduler.snapshot import AgentView
from backendai.web.launcher.allocation_fields import CUSTOM, MINIMUM, AllocationFields
from backendai.web.launcher.allocation_words import Words, name_of
from backendai.web.launcher.presets import Obstacle, Variant, mark_obstacles, split_size

_SIZES = ("cpu", "mem")


@dataclass(frozen=True, slots=True)
class Row:
    """One amount: its field, and its bounds in words (None: nobody knows them)."""

    slot: str
    bound: Any
    number: str = ""
    unit: str = ""
    is_offered: bool = True
    words: Words | None = None

    @property
    def is_required(self) -> bool:
        """Whether there is no launch without it."""
        return bool(self.words and self.words.amount.is_required)


@dataclass(frozen=True, slots=True)
class SharedMemory:
    """The field of the shared memory. ``usual``: JSON pairs: from so much memory on, so many bytes come with it."""

    row: Row
    usual: str
    automatic: int | None  # bytes; None while the memory cannot be read
    is_tight: bool  # programs would have less than twice as much


@dataclass(frozen=True, slots=True)
class KernelRoom:
    """How many kernels there may be, whose limit that is, and how many fit now: on one agent, on all (None: untold)."""

    most: int = LARGEST_CLUSTER
    whose: str = ""
    on_one: int | None = None
    together: int | None = None


@dataclass(frozen=True, slots=True)
class AgentChoice:
    """An agent to choose, and what it has left (None: it takes no sessions now)."""

    name: str
    free: Slots | None


@dataclass(frozen=True, slots=True)
class Misfit:
    """Why a preset does not go with the environment or the number of kernels."""

    message: str
    never: bool


@dataclass(frozen=True, slots=True)
class Allocation:
    """All that the form shows about amounts."""

    cpu: Row
    mem: Row
    accelerators: Sequence[Row]
    shm: SharedMemory
    group: str = ""
    agents: Sequence[AgentChoice] = ()
    kernels: KernelRoom = KernelRoom()
    minimum: Variant | None = None
    none_because: str = ""  # why there is no accelerator to choose

    @property
    def rows(self) -> list[Row]:
        """Every amount that has bounds."""
        return [self.cpu, self.mem, *self.accelerators]


def allocation_of(form: AllocationFields, owner: User, actor: User) -> Allocation:
    """Return the amounts for where the form stands now, and tell the form's presets which of them fit there."""
    project, group_name = form.place()
    cpu, mem, *others = (_row(form, slot) for slot in (*_SIZES, *form.accelerators))
    try:
        place = place_of(owner, project=project, resource_group=group_name, actor=actor)
    except UserError:
        mark_obstacles(form.presets, group_name, {})
        return Allocation(cpu, mem, others, _shared_memory(form, None))
    found, image, shape = availability(owner, *place), _image(form), _shape(form)
    machines = Machines(found)
    amounts = {amount.slot: amount for amount in amounts_of(found, image, shape, machines)}
    words = {
        slot: Words(amount, found.group.name, shape.kernels, may_see_room(actor)) for slot, amount in amounts.items()
    }
    mark_obstacles(form.presets, found.group.name, _obstacles(found, image, words, shape))
    return Allocation(
        cpu=_with_words(cpu, form, words),
        mem=_with_words(mem, form, words),
        accelerators=[_with_words(row, form, words) for row in others],
        shm=_shared_memory(form, found.group),
        group=found.group.name,
        agents=[_agent_choice(agent) for agent in found.agents] if site_settings().agent_select else (),
        kernels=_kernel_room(form, found, machines, tells_room=may_see_room(actor)),
        minimum=Variant("", Slots({slot: amount.minimum.amount for slot, amount in amounts.items()})),
        none_because=_none_because(found, image, amounts),
    )


def may_see_room(actor: User) -> bool:
    """Return whether this person is told what the groups have free."""
    return actor.is_superadmin or site_settings().group_resources_visible


def _row(form: AllocationFields, slot: str) -> Row:
    name = slot if slot in (*_SIZES, "shm") else f"slot.{slot}"
    text = form.typed(name)
    number, unit = split_size(text) if slot in ("mem", "shm") and text else (text, "g")
    return Row(slot, form[name], number, unit, is_offered=slot in (*_SIZES, "shm"))


def _with_words(row: Row, form: AllocationFields, words: Mapping[str, Words]) -> Row:
    known = words.get(row.slot)
    if known is None:
        return row
    value = known.value_of(form.typed(row.bound.name))
    return replace(row, is_offered=known.amount.is_offered, words=replace(known, value=value))


def _image(form: AllocationFields) -> Image:
    """Return the environment that is chosen; one that needs nothing while none is."""
    typed = form["manual_image"].value() if "manual_image" in form.fields else ""
    found: Image | None = cast(Any, form.fields["image"]).find(str(typed or form["image"].value() or ""))
    return found or Image()


def _shape(form: AllocationFields) -> Shape:
    size = str(form["cluster_size"].value() or "1")
    kernels = min(int(size), LARGEST_CLUSTER) if size.isascii() and size.isdigit() else 1
    multi_node = kernels > 1 and form["cluster_mode"].value() == ClusterMode.MULTI_NODE
    agent = str(form["agents"].value() or "") if "agents" in form.fields and kernels < 2 else ""
    return Shape(max(1, kernels), multi_node, agent)


def _obstacles(found: Availability, image: Image, words: Mapping[str, Words], shape: Shape) -> dict[int, Obstacle]:
    """Return by the id of a preset why a session of it could not start now."""
    obstacles: dict[int, Obstacle] = {}
    for fit in found.presets:
        misfits = list(_misfits(fit.preset.amounts, image, words))
        final = next((each for each in misfits if each.never), None)
        if fit.reason and fit.reason.never:
            obstacles[fit.preset.pk] = fit.reason
        elif final or fit.reason:
            obstacles[fit.preset.pk] = final or cast(Obstacle, fit.reason)
        elif misfits and shape.kernels > 1:
            obstacles[fit.preset.pk] = misfits[0]
    return obstacles


def _misfits(slots: Slots, image: Image, words: Mapping[str, Words]) -> Iterator[Misfit]:
    for slot in slots:
        if not image.can_use(slot):
            values = {"image": image.display_name, "slot": name_of(slot)}
            yield Misfit(_("%(image)s has no use for %(slot)s.") % values, never=True)
    for slot, known in words.items():
        if slot not in slots and (slot in _SIZES or not known.amount.is_required):
            continue  # the usual amount, or none
        note = known.said_of(slots[slot])
        if note:
            yield Misfit(f"{name_of(slot)}: {note.text}", never=note.tone == "bad")


def _agent_choice(agent: AgentView) -> AgentChoice:
    if not (agent.alive and agent.schedulable):
        return AgentChoice(agent.name, None)
    return AgentChoice(agent.name, Slots({name: max(0, agent.free[name]) for name in agent.capacity}))


def _kernel_room(form: AllocationFields, found: Availability, machines: Machines, *, tells_room: bool) -> KernelRoom:
    limit = strictest(found.limited, "max_kernels_per_session")
    most, whose = (limit[0], limit[1].label) if limit and limit[0] < LARGEST_CLUSTER else (LARGEST_CLUSTER, "")
    asked = _asked(form, found.group.name)
    if asked is None or not tells_room:
        return KernelRoom(most, whose)
    on_one, together = kernels_now(found, asked, machines)
    return KernelRoom(most, whose, min(on_one, most), min(together, most))


def _asked(form: AllocationFields, group: str) -> Slots | None:
    """Return the amounts of a kernel as the form stands; None when they cannot be read."""
    preset = str(form["preset"].value() or CUSTOM)
    choice = next((each for each in form.presets if each.name == preset), None)
    if choice is not None:
        return choice.slots_in(group)
    texts = {slot: form.typed(slot if slot in _SIZES else f"slot.{slot}") for slot in (*_SIZES, *form.accelerators)}
    try:
        return None if preset == MINIMUM else Slots.parse({slot: text for slot, text in texts.items() if text})
    except UserError:
        return None


def _shared_memory(form: AllocationFields, group: ResourceGroup | None) -> SharedMemory:
    row = _row(form, "shm")
    usual = parse_session_defaults(group.session_defaults).shm if group else ""
    pairs = json.dumps(usual_shm(usual))
    try:
        memory = Slots.parse({"mem": form.typed("mem") or "0"})["mem"] // MILLI
        manual = Slots.parse({"shm": form.typed("shm") or "0"})["shm"] // MILLI
    except UserError:
        return SharedMemory(row, pairs, None, is_tight=False)
    shm = manual or automatic_shm(memory, usual)
    return SharedMemory(row, pairs, automatic_shm(memory, usual), is_tight=0 < memory - shm < 2 * shm)


def _none_because(found: Availability, image: Image, amounts: Mapping[str, Amount]) -> str:
    """Return why there is no accelerator to choose; empty when there is one."""
    if any(slot not in _SIZES for slot, amount in amounts.items() if amount.is_offered):
        return ""
    there = {name for agent in found.agents for name, amount in agent.capacity.items() if amount} - set(_SIZES)
    if there and image.accelerators is not None:
        return _("%(name)s uses none of those that %(group)s has.") % {
            "name": image.display_name,
            "group": found.group.name,
        }
    return _("Resource group %(group)s has none.") % {"group": found.group.name}
