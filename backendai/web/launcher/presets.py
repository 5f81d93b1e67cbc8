"""Presets as the launch form offers them: one choice per name, whatever the number of groups that have it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field

from backendai.accounts.models import User
from backendai.catalog.models import ResourcePreset
from backendai.compute.services.check import place_of
from backendai.core.errors import UserError
from backendai.core.slots import Slots, decimal_text, format_amount
from backendai.planning.availability import availability
from backendai.scheduler.plan import Reason


@dataclass(frozen=True, slots=True)
class Variant:
    """What a preset means in one resource group; ``group`` is empty for every group without its own."""

    group: str
    slots: Slots
    id: int = 0

    @property
    def typed(self) -> str:
        """The amounts as somebody would type them, as JSON."""
        return json.dumps(typed_amounts(self.slots))


@dataclass(slots=True)
class PresetChoice:
    """A preset's name with its meanings: for all groups first, then by group."""

    name: str
    variants: list[Variant] = field(default_factory=list)
    obstacle: Reason | None = None  # why a session of it could not start now where the form stands

    def slots_in(self, group: str) -> Slots | None:
        """Return the amounts in this group, its own before those for all; None when it has none."""
        found = {variant.group: variant.slots for variant in self.variants}
        return found.get(group) or found.get("")


def preset_choices(user: User) -> list[PresetChoice]:
    """Return the presets that the user may pick, in their order."""
    choices: dict[str, PresetChoice] = {}
    for preset in ResourcePreset.objects.visible_to(user).select_related("resource_group"):
        group = preset.resource_group.name if preset.resource_group else ""
        choices.setdefault(preset.name, PresetChoice(preset.name)).variants.append(
            Variant(group, preset.amounts, preset.pk)
        )
    for choice in choices.values():
        choice.variants.sort(key=lambda variant: variant.group)
    return list(choices.values())


def obstacles_in(user: User, project: str, group: str) -> dict[int, Reason]:
    """Return by the id of a preset why a session of it could not start now in this project (by id) and group.

    Those that could are left out, and so are all when no session of the user may be there.
    """
    try:
        place = place_of(user, project=project, resource_group=group)
    except UserError:
        return {}
    return {fit.preset.pk: fit.reason for fit in availability(user, *place).presets if fit.reason}


def mark_obstacles(choices: list[PresetChoice], obstacles: Mapping[int, Reason]) -> None:
    """Let each choice know why it does not fit."""
    for choice in choices:
        choice.obstacle = next((obstacles[one.id] for one in choice.variants if one.id in obstacles), None)


def typed_amounts(slots: Slots) -> dict[str, str]:
    """Return amounts as somebody would type them, where that is exact: ``4g`` instead of 4294967296."""
    return {name: _typed(name, amount) for name, amount in slots.items()}


def _typed(name: str, amount: int) -> str:
    number, _, unit = format_amount(name, amount).partition(" ")
    if unit in ("MiB", "GiB", "TiB") and number.isdigit():
        return number + unit[0].lower()
    return decimal_text(amount)
