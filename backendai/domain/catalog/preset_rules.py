"""Validates resource presets: a name, valid amounts, and shared memory within the memory."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from backendai.base.core.errors import UserError
from backendai.base.core.messages import Message
from backendai.base.core.names import check_catalogue_name
from backendai.base.core.slots import MILLI, Slots, format_size
from backendai.scheduler.capacity.devices import flaw_of

USUAL_MEMORY = 2**30  # what a session gets that does not say how much


def wrong_preset(name: str, slots: Any, shm_bytes: int | None) -> dict[str, str]:
    """Return the errors of a preset by field; empty if it is valid."""
    wrong: dict[str, str] = {}
    try:
        check_catalogue_name(name)
    except UserError as error:
        wrong["name"] = error.message
    try:
        amounts = _amounts(slots)
    except UserError as error:
        return wrong | {"slots": error.message}
    memory = amounts["mem"] // MILLI or USUAL_MEMORY
    if shm_bytes is not None and not 0 < shm_bytes < memory:
        wrong["shm_bytes"] = Message(
            "Shared memory is part of the memory: write more than 0 and less than {memory}, not {shm_bytes}.",
            memory=format_size(memory),
            shm_bytes=format_size(shm_bytes),
        )
    return wrong


def taken_name(name: str, group: object) -> str:
    """Return the error for a second preset of this name in a group, or for all groups (None)."""
    where = Message("resource group {group}", group=group) if group else Message("all groups")
    return Message("A preset {name} for {where} already exists.", name=repr(name), where=where)


def exact_amounts(slots: Mapping[str, Any]) -> dict[str, str]:
    """Return the amounts of a valid preset as exact decimal strings."""
    return _amounts(slots).to_json()


def _amounts(slots: Any) -> Slots:
    if not isinstance(slots, Mapping):
        raise UserError(
            "Write slots with their amounts, such as cpu=8, mem=64g.", field="slots", code="invalid-amounts"
        )
    amounts = Slots.parse(slots, field="slots", typed=True)
    if not amounts:
        raise UserError("Write at least one slot with its amount.", field="slots", code="invalid-amounts")
    if "shm" in amounts:
        raise UserError("Shared memory has a field of its own.", field="slots", code="invalid-amounts")
    flaw = flaw_of(amounts.items())
    if flaw:
        raise UserError(flaw.message, field="slots", code=flaw.code)
    return amounts
