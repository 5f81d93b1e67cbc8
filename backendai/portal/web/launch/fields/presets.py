"""Presets in the launch form: one choice for each name, even if several groups have a preset of this name."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

from backendai.base.core.errors import UserError
from backendai.base.core.slots import MILLI, Slots, decimal_text, format_amount
from backendai.domain.accounts.models import User
from backendai.domain.planning.amounts.availability import presets_open


@dataclass(frozen=True, slots=True)
class Variant:
    """The amounts of a preset in one resource group; ``group`` is empty for all other groups."""

    group: str
    slots: Slots
    id: int = 0
    shm_bytes: int = 0

    @property
    def typed(self) -> str:
        """The amounts in the notation of people, as JSON."""
        shm = Slots({"shm": self.shm_bytes * MILLI})
        return json.dumps(typed_amounts(self.slots) | typed_amounts(shm))


class Obstacle(Protocol):
    """Why a session could not start now, or ``never``."""

    @property
    def message(self) -> str: ...
    @property
    def never(self) -> bool: ...
    @property
    def short(self) -> str: ...


@dataclass(slots=True)
class PresetChoice:
    """The name of a preset with its variants for resource groups."""

    name: str
    variants: list[Variant] = field(default_factory=list)
    obstacle: Obstacle | None = None  # why a session of it could not start now where the form stands
    is_elsewhere: bool = False  # it means nothing in the group where the form stands

    def variant_in(self, group: str) -> Variant | None:
        """Return the variant in this group: the group's own, else that for all groups, else None."""
        found = {variant.group: variant for variant in self.variants}
        return found.get(group) or found.get("")

    def slots_in(self, group: str) -> Slots | None:
        """Return the amounts of the preset in this group, or None."""
        variant = self.variant_in(group)
        return variant.slots if variant else None


def preset_choices(user: User) -> list[PresetChoice]:
    """Return the presets that the user may choose, in their order."""
    choices: dict[str, PresetChoice] = {}
    for preset in presets_open(user):
        group = preset.resource_group.name if preset.resource_group else ""
        choices.setdefault(preset.name, PresetChoice(preset.name)).variants.append(
            Variant(group, preset.amounts, preset.pk, preset.shm_bytes or 0)
        )
    for choice in choices.values():
        choice.variants.sort(key=lambda variant: variant.group)
    return list(choices.values())


def mark_obstacles(choices: list[PresetChoice], group: str, obstacles: Mapping[int, Obstacle]) -> None:
    """Set why each preset does not fit in this group, and put those first that could start now."""
    for choice in choices:
        variant = choice.variant_in(group)
        choice.obstacle = obstacles.get(variant.id) if variant else None
        choice.is_elsewhere = variant is None
    choices.sort(key=lambda choice: (bool(choice.obstacle and choice.obstacle.never), choice.obstacle is not None))


def typed_amounts(slots: Slots) -> dict[str, str]:
    """Return amounts in the notation of people, if that is exact: ``4g`` instead of 4294967296."""
    return {name: _typed(name, amount) for name, amount in slots.items()}


def split_size(text: str) -> tuple[str, str]:
    """Return the number and the unit (m, g or t) of a typed size. An invalid text has no unit."""
    try:
        typed = typed_amounts(Slots.parse({"mem": text}))["mem"] if text else ""
    except (UserError, KeyError):
        return text, ""
    if text[-1:].isdigit() and not typed.isdigit():
        text = typed  # so many bytes, which nobody reads
    number, unit = text.strip().lower().removesuffix("b").removesuffix("i"), ""
    if number[-1:] in ("m", "g", "t"):
        number, unit = number[:-1].strip(), number[-1]
    return (number, unit) if is_number(number) else (text, "")


def is_number(text: str) -> bool:
    """Return whether the text is a plain number, such as 1.5."""
    whole, _, part = text.partition(".")
    return f"{whole}{part}".isascii() and f"{whole}{part}".isdigit()


def _typed(name: str, amount: int) -> str:
    number, _, unit = format_amount(name, amount).partition(" ")
    if unit in ("MiB", "GiB", "TiB") and number.isdigit():
        return number + unit[0].lower()
    return decimal_text(amount)
