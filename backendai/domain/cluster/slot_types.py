"""The display and the steps of slots; one query for a page, however many amounts it shows.

Names and units are rows that administrators change; ``core.slots`` works without them.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from typing import Any
from uuid import UUID

from django.db.models import QuerySet

from backendai.base.core.errors import UserError
from backendai.base.core.messages import Message
from backendai.base.core.nearest import unknown
from backendai.base.core.slots import MILLI, Slots, amount_in_words, decimal_text, format_amount, format_size, is_size
from backendai.base.db.per_request import forget, is_within_request, once
from backendai.domain.accounts.models import User
from backendai.domain.activity.services import audit
from backendai.domain.cluster.models import SlotType

Looks = Mapping[str, SlotType]

_PIECE = re.compile(r"cuda\.mig-[a-z0-9.-]+\Z")


def _all() -> QuerySet[Any, Any]:
    return SlotType.objects.all()


_WORDS_FOR_GPUS = frozenset({"gpu", "gpus", "cuda", "nvidia"})
# What is known without the database: outside of a request, and of slots that no row describes.
_USUAL = {
    "cpu": "CPU",
    "mem": Message("Memory"),
    "cuda.device": Message("GPU"),
    "cuda.shares": Message("GPU shares"),
    "rocm.device": "AMD GPU",
}


def slot_types() -> Looks:
    """Return all slot types by name, in their order."""
    return once("slot-types", _read)


def look_of(slot: str) -> SlotType:
    """Return the slot type of a slot. Outside of a request, or without a row, it is derived from the slot's name."""
    found = slot_types().get(slot) if is_within_request() else None
    return found or _suggested(slot)


def shown_amount(slot: str, amount: int) -> str:
    """Return an amount in thousandths as text: sizes in binary units, others as a number with the slot's unit."""
    look = look_of(slot)
    if look.kind == SlotType.Kind.BYTES:
        return format_size(amount // 1000)
    if is_size(slot):
        return format_amount(slot, amount)
    return f"{decimal_text(amount)} {look.unit}".rstrip()


def check_known(slots: Iterable[str], *, field: str, kept: Collection[str] = ()) -> None:
    """Raise UserError for a slot that no agent has offered: a limit on a misspelt slot has no effect.

    Slots of the platform's own agents are known before the first agent joins. ``kept``: slots stored earlier.
    ``field``: of the error; ``{slot}`` in it is the slot.
    """
    known = {*_USUAL, *slot_types()}
    for slot in slots:
        if slot not in known and slot not in kept and not is_usual(slot):
            text = unknown(Message("slot"), slot, known, "cuda.device" if slot in _WORDS_FOR_GPUS else "")
            raise UserError(text, field=field.format(slot=slot), code="unknown-slot")


def in_order(slots: Collection[str]) -> list[str]:
    """Return slots in the order of display: by rank, then by name."""
    return sorted(slots, key=lambda slot: (look_of(slot).rank, slot))


def check_steps(slots: Slots) -> None:
    """Raise UserError for amounts that are no multiple of the slot's step, and for slots that are not enabled."""
    known = slot_types()
    for slot, amount in slots.items():
        look = known.get(slot)
        if look is None:
            continue
        if not look.is_enabled:
            text = Message(
                "{slot} ({display_name}) is not offered at present.", slot=slot, display_name=look.display_name
            )
            raise UserError(text, field=f"resources.{slot}", code="slot-not-offered")
        if amount % look.quantum:
            told = amount_in_words(slot, amount)
            raise UserError(
                "{told} requested, but it is allocated in steps of {step}.",
                told=told,
                field=f"resources.{slot}",
                code="wrong-step",
                wanted=decimal_text(amount),
                step=look.step,
            )


def is_usual(slot: str) -> bool:
    """Return whether the platform's own agents offer this slot."""
    return slot in _USUAL or bool(_PIECE.match(slot))


def ensure_slot_types(offers: Mapping[str, UUID]) -> None:
    """Create rows for unknown slots, by the agent that offers them.

    Slots that only this agent knows are not enabled, and replace those it offered before.
    """
    missing = set(offers) - set(SlotType.objects.filter(name__in=offers).values_list("name", flat=True))
    if not missing:
        return
    new = [_suggested(name) for name in sorted(missing)]
    for row in new:
        if not is_usual(row.name):
            row.is_enabled, row.offered_by_id = False, offers[row.name]
    owners = {row.offered_by_id for row in new if row.offered_by_id}
    SlotType.objects.filter(offered_by__in=owners).exclude(name__in=offers).delete()
    SlotType.objects.bulk_create(new, ignore_conflicts=True)


def change_slot_type(actor: User, slot: SlotType, values: Mapping[str, object]) -> SlotType:
    """Save these columns of a slot type. Raises ValidationError with the errors by field."""
    changes = {name: [getattr(slot, name), value] for name, value in values.items() if getattr(slot, name) != value}
    for name, (_, value) in changes.items():
        setattr(slot, name, value)
    slot.full_clean()
    if slot.is_enabled:
        slot.offered_by = None  # an administrator has taken it over
    if changes:
        slot.save()
        forget()
        audit(actor.pk, "slot-type.change", "slot-type", [slot.pk], name=slot.name, changes=changes)
    return slot


def _read() -> Looks:
    return {slot.name: slot for slot in _all()}


def _suggested(slot: str) -> SlotType:
    ranks = {"cpu": 10, "mem": 20}
    whole = SlotType.Kind.BYTES if is_size(slot) else SlotType.Kind.UNIQUE if _PIECE.match(slot) else None
    return SlotType(
        name=slot,
        kind=whole or SlotType.Kind.COUNT,
        display_name=_USUAL.get(slot, slot)[:64],
        quantum=MILLI if whole else 1,
        rank=ranks.get(slot, 100),
    )
