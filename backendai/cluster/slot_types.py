"""How slots are shown to people, and which steps they have. One query for a page, however many amounts it shows.

Names and units are rows that administrators change; ``core.slots`` counts without them.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from uuid import UUID

from backendai.accounts.models import User
from backendai.accounts.prepared import Prepared
from backendai.activity.services import audit
from backendai.cluster.per_request import forget, is_within_request, once
from backendai.cluster.site_models import SlotType
from backendai.core.errors import UserError
from backendai.core.messages import Message
from backendai.core.slots import Slots, amount_in_words, decimal_text, format_amount, format_size, is_size

Looks = Mapping[str, SlotType]

_PIECE = re.compile(r"cuda\.mig-[a-z0-9.-]+\Z")
_ALL = Prepared(lambda: SlotType.objects.all())

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
    """Return how a slot looks; outside of a request, or when nothing describes it, as its name suggests."""
    found = slot_types().get(slot) if is_within_request() else None
    return found or _suggested(slot)


def shown_amount(slot: str, amount: int) -> str:
    """Return thousandths of a slot for people: sizes in binary units, the rest as a number with its unit."""
    look = look_of(slot)
    if look.kind == SlotType.Kind.BYTES:
        return format_size(amount // 1000)
    if is_size(slot):
        return format_amount(slot, amount)
    return f"{decimal_text(amount)} {look.unit}".rstrip()


def unheard_of(slots: Collection[str]) -> list[str]:
    """Return those slots, by name, that no machine has offered so far: misspelt, or of a machine yet to come."""
    return sorted(set(slots) - set(slot_types()))


def in_order(slots: Collection[str]) -> list[str]:
    """Return slots as they are shown one after the other: by rank, then by name."""
    return sorted(slots, key=lambda slot: (look_of(slot).rank, slot))


def check_steps(slots: Slots) -> None:
    """Refuse amounts that are no multiple of their slot's step, and slots that nobody may ask for."""
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
    """Return whether the platform's own agents offer such a slot."""
    return slot in _USUAL or bool(_PIECE.match(slot))


def ensure_slot_types(offers: Mapping[str, UUID]) -> None:
    """Make rows for slots that nobody has described yet, by the agent that offers them. Those that only this agent
    knows are not enabled, and take the place of what it offered before."""
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
    """Write these columns of a slot type. Raises a ValidationError by field."""
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
    return {slot.name: slot for slot in _ALL.rows()}


def _suggested(slot: str) -> SlotType:
    ranks = {"cpu": 10, "mem": 20}
    return SlotType(
        name=slot,
        kind=SlotType.Kind.BYTES if is_size(slot) else SlotType.Kind.COUNT,
        display_name=_USUAL.get(slot, slot)[:64],
        quantum=1000 if is_size(slot) else 1,
        rank=ranks.get(slot, 100),
    )
