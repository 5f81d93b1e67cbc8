"""The resources for a launch in the form's project and group: agents, limits, bounds, and presets that fit now.

Computed once for each request.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, cast

from backendai.base.core.errors import UserError
from backendai.base.core.slots import Slots
from backendai.base.db.per_request import once
from backendai.base.texts.translation import gettext as _
from backendai.base.texts.translation import ngettext
from backendai.domain.accounts.models import User
from backendai.domain.catalog.models import Image
from backendai.domain.cluster.site import site_settings
from backendai.domain.compute.services.requests.check import LARGEST_CLUSTER, place_of
from backendai.domain.compute.status import ClusterMode
from backendai.domain.planning.amounts.availability import Availability, availability
from backendai.domain.planning.amounts.bounds import Amount, Machines, Shape, amounts_of
from backendai.portal.web.dashboard.resources import RoomBars, bars_of
from backendai.portal.web.launch.fields.allocation_fields import AllocationFields, initial_amounts
from backendai.portal.web.launch.fields.allocation_words import Words, name_of, plain
from backendai.portal.web.launch.fields.presets import Obstacle, typed_amounts

SIZES = ("cpu", "mem")
_MOST_NAMED = 5
_SAID: dict[str, Callable[[int], str]] = {
    "native": lambda number: ngettext(
        "%(names)s is not counted: it has no containers.",
        "%(number)s agents are not counted, as they have no containers: %(names)s.",
        number,
    ),
    "architecture": lambda number: ngettext(
        "%(names)s is not counted: the image needs %(architecture)s.",
        "%(number)s agents are not counted, as the image needs %(architecture)s: %(names)s.",
        number,
    ),
    "image": lambda number: ngettext(
        "%(names)s is not counted: it does not have the image.",
        "%(number)s agents are not counted, as they do not have the image: %(names)s.",
        number,
    ),
}


@dataclass(frozen=True, slots=True)
class PresetMisfit:
    """Why a preset does not fit in the form's group; ``short``: in a few words, or empty."""

    message: str
    never: bool
    short: str = ""


@dataclass(frozen=True, slots=True)
class LaunchResources:
    """The resources of one project and group, for one image and shape.

    ``obstacles``: why a session of a preset could not start now, by the preset's id.
    """

    found: Availability
    machines: Machines
    image: Image
    shape: Shape
    amounts: Mapping[str, Amount]
    words: Mapping[str, Words]
    obstacles: Mapping[int, Obstacle]


def ground_of(form: AllocationFields, owner: User, actor: User) -> LaunchResources | None:
    """Return the resources for the form's current state; None if nothing can be launched."""
    project, group = form.place()
    image, shape = _image(form), _shape(form)
    name = ("ground", owner.pk, actor.pk, project, group, image.name, shape)
    return once(name, lambda: _read(owner, actor, (project, group), image, shape))


def begin_with_what_fits(form: AllocationFields, owner: User, actor: User) -> None:
    """Preselect the first preset that could start now. If none could, the first by rank stays selected."""
    ground = ground_of(form, owner, actor)
    if ground is None:
        return
    for choice in form.presets:
        variant = choice.variant_in(ground.found.group.name)
        if variant and variant.id not in ground.obstacles:
            amounts = initial_amounts(typed_amounts(variant.slots))
            for name in ("cpu", "mem", "mem_unit", *(f"slot.{slot}" for slot in form.accelerators)):
                form[name].initial = amounts.get(name, form.fields[name].initial)
            form["preset"].initial = choice.name
            return


def room_of(ground: LaunchResources, waiting: int) -> RoomBars:
    """Return the bars of the form's group, over the agents that can run the chosen image."""
    number, occupied, capacity = ground.machines.use()
    return RoomBars(ground.found.group, waiting, number, bars_of(occupied, capacity), list(_not_counted(ground)))


def _not_counted(ground: LaunchResources) -> Iterator[str]:
    """Yield for each cause which agents take sessions but cannot run the image."""
    causes: dict[str, list[str]] = {}
    wanted = ground.image.architecture
    for agent in ground.machines.left_out:
        other = wanted and agent.architecture != wanted
        causes.setdefault("architecture" if other else "native" if agent.is_native else "image", []).append(agent.name)
    for cause, names in causes.items():
        values = {"names": ", ".join(names[:_MOST_NAMED]), "number": len(names), "architecture": wanted}
        yield _SAID[cause](len(names)) % values


def may_see_room(actor: User) -> bool:
    """Return whether this user may see the free resources of groups."""
    return actor.is_superadmin or site_settings().group_resources_visible


def _read(owner: User, actor: User, named: tuple[str, str], image: Image, shape: Shape) -> LaunchResources | None:
    try:
        place = place_of(owner, project=named[0], resource_group=named[1], actor=actor)
    except UserError:
        return None
    found = availability(owner, *place)
    machines = Machines(found, image)
    amounts = {amount.slot: amount for amount in amounts_of(found, image, shape, machines)}
    tells = may_see_room(actor)
    words = {slot: Words(amount, found.group.name, shape.kernels, tells) for slot, amount in amounts.items()}
    return LaunchResources(found, machines, image, shape, amounts, words, _obstacles(found, image, words, shape))


def _image(form: AllocationFields) -> Image:
    """Return the chosen image; an empty one, without requirements, if none is chosen."""
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
    """Return why a session of each preset could not start now, by the preset's id."""
    obstacles: dict[int, Obstacle] = {}
    for fit in found.presets:
        misfits = list(_misfits(fit.preset.amounts, image, words))
        final = next((each for each in misfits if each.never), None)
        reason = PresetMisfit(fit.reason.message, fit.reason.never) if fit.reason else None
        first = reason if reason and reason.never else final or reason
        if first is None and misfits and shape.kernels > 1:
            first = misfits[0]
        if first is not None:
            obstacles[fit.preset.pk] = replace(first, short=_short(fit.preset.amounts, words, never=first.never))
    return obstacles


def _short(slots: Slots, words: Mapping[str, Words], *, never: bool) -> str:
    """Return the first amount that is too large, with the available amount; empty if there is none."""
    for slot, known in words.items():
        wanted, most, now = slots[slot], known.amount.maximum, known.remaining_amount
        values = {"wanted": f"{plain(slot, wanted)} {name_of(slot)}"}
        if never and most and wanted > most.amount:
            return _("needs %(wanted)s, at most %(most)s") % (values | {"most": plain(slot, most.amount)})
        if not never and now is not None and wanted > now:
            values["now"] = plain(slot, max(0, now))
            if known.kernels > 1:
                return _("needs %(wanted)s, %(now)s for each kernel") % values
            if known.is_limited:
                return _("needs %(wanted)s, %(now)s left of the limit") % values
            if known.amount.free > known.amount.on_one:
                return _("needs %(wanted)s, %(now)s free on one agent") % values
            return _("needs %(wanted)s, %(now)s free") % values
    return ""


def _misfits(slots: Slots, image: Image, words: Mapping[str, Words]) -> Iterator[PresetMisfit]:
    for slot in slots:
        if not image.can_use(slot):
            values = {"image": image.display_name, "slot": name_of(slot)}
            yield PresetMisfit(_("%(image)s does not support %(slot)s.") % values, never=True)
    for slot, known in words.items():
        if slot not in slots and (slot in SIZES or not known.amount.is_required):
            continue  # the usual amount, or none
        note = known.said_of(slots[slot])
        if note:
            yield PresetMisfit(f"{name_of(slot)}: {note.text}", never=note.tone == "bad")
