"""Checks of the form's amounts that the services do not make: a session that would wait forever."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Protocol

from django.utils.translation import gettext as _

from backendai.base.core.errors import UserError
from backendai.base.core.slots import MILLI, Slots, is_accelerator
from backendai.domain.accounts.models import Project, User
from backendai.domain.compute.services.requests.limits import beyond_limits, key_pair_of, limits_on
from backendai.portal.web.launch.fields.presets import PresetChoice


class Amounts(Protocol):
    """The parts of the launch form that these checks read."""

    cleaned_data: dict[str, Any]
    presets: list[PresetChoice]

    def own_amounts(self) -> dict[str, str]: ...


def wrong_amounts(form: Amounts, owner: User) -> Iterator[tuple[str, str]]:
    """Yield field and text of each error in the amounts. The fields themselves must have been validated."""
    data = form.cleaned_data
    kernels = data.get("cluster_size") or 1
    if kernels > 1 and data.get("agents"):
        yield "agents", _("Only a session of one kernel can have its agent chosen: leave it to the scheduler.")
    amounts = _amounts(form)
    if amounts is None:
        return
    for slot, amount in amounts.items():
        if kernels > 1 and is_accelerator(slot) and amount % MILLI:
            yield _field(data, slot), _("Each of several kernels takes whole accelerators: no part of one.")
    if data.get("project"):
        yield from _beyond_limits(owner, data, amounts * kernels)


def _amounts(form: Amounts) -> Slots | None:
    """Return the amounts of each kernel; None if they are invalid."""
    preset, group = form.cleaned_data.get("preset"), form.cleaned_data.get("resource_group")
    if preset is None:
        return None
    choice = next((each for each in form.presets if each.name == preset), None)
    if choice is not None:
        return choice.slots_in(group.name) if group else None
    try:
        return None if preset else Slots.parse(form.own_amounts())
    except UserError:
        return None  # said at its field by the launch


def _beyond_limits(owner: User, data: dict[str, Any], asked: Slots) -> Iterator[tuple[str, str]]:
    """Yield the errors of amounts that exceed a policy even if nothing else is held."""
    project: Project = data["project"]
    key_pair = key_pair_of(owner)
    reason = beyond_limits(limits_on(owner, project, key_pair), asked)
    if reason is not None:
        yield _field(data, str(reason.details["slot"])), reason.message


def _field(data: dict[str, Any], slot: str) -> str:
    if data.get("preset"):
        return "preset"
    return f"slot.{slot}" if is_accelerator(slot) else slot
