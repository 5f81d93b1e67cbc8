"""Validates the amounts of a launch request: against the image's minimum and the agents' capacity."""

from __future__ import annotations

import json
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from django.db.models import F, QuerySet, TextField
from django.db.models.functions import Cast

from backendai.base.core.errors import UserError
from backendai.base.core.messages import Message
from backendai.base.core.slots import (
    LARGEST,
    MILLI,
    Slots,
    amount_in_words,
    format_amount,
    format_size,
    parse_amount,
    parse_size,
)
from backendai.base.db.bulk import list_of, listed
from backendai.domain.accounts.models import User
from backendai.domain.catalog.models import Image, ResourcePreset
from backendai.domain.cluster.models import Agent, ResourceGroup
from backendai.domain.cluster.site import check_caps
from backendai.domain.cluster.slot_types import check_known, check_steps
from backendai.domain.compute.services.status.ledger import slots_of as stored_slots
from backendai.domain.compute.spec import SessionSpec

_DEFAULTS = {"cpu": 1 * MILLI, "mem": 1024 * 2**20 * MILLI}
_USUAL_SHM = ((4 * 2**30, 2**30), (0, 64 * 2**20))
_SMALLEST = {"cpu": MILLI // 10, "mem": 16 * 2**20 * MILLI}


def preset_of(user: User, spec: SessionSpec, group: ResourceGroup) -> ResourcePreset | None:
    """Return the requested preset, or None if the request names none. A group's preset replaces a global preset of the
    same name. Raises UserError for an unknown preset."""
    if not spec.preset:
        return None
    presets = ResourcePreset.objects.visible_to(user).in_group(group).filter(name=spec.preset)
    found: ResourcePreset | None = presets.order_by(F("resource_group").asc(nulls_last=True)).first()
    if found is None:
        raise UserError(
            "Preset {preset} not found for {group}.",
            preset=repr(spec.preset),
            group=group.name,
            field="preset",
            code="unknown-preset",
        )
    return found


def slots_of(spec: SessionSpec, preset: ResourcePreset | None, image: Image) -> Slots:
    """Return the amounts of each kernel. Requested amounts override the preset's, which override the defaults. Raises
    UserError for an invalid amount."""
    least, most = image.minimum_slots, image.maximum_slots
    base = {name: min(max(usual, least[name]), most.get(name, LARGEST)) for name, usual in _DEFAULTS.items()}
    if preset:
        base |= dict(preset.amounts)
    check_known(spec.resources, field="resources.{slot}")
    # Slots.parse would drop a zero, which must override the default.
    wanted = spec.resources.items()
    asked = {name: parse_amount(name, value, field=f"resources.{name}", typed=True) for name, value in wanted}
    slots = Slots(base | asked)
    check_steps(slots)
    check_caps(slots)
    return slots


def minimum_of(image: Image) -> Slots:
    """Return the smallest amounts for a kernel of the image."""
    minimum = image.minimum_slots
    return Slots({name: max(_SMALLEST.get(name, 0), minimum[name]) for name in _SMALLEST.keys() | set(minimum)})


def check_bounds(slots: Slots, image: Image) -> None:
    """Reject amounts below the image's minimum, above its maximum, or of slots that it cannot use."""
    for name, least in minimum_of(image).items():
        if slots[name] < least:
            raise _out_of_bounds(name, slots[name], image, least, "below-minimum")
    for name, amount in slots.items():
        if not image.can_use(name):
            raise UserError(
                "{image} does not support {amount}; it supports {accelerators}.",
                amount=amount_in_words(name, amount),
                image=image.name,
                accelerators=sorted(image.accelerators or ()) or Message(Message("no accelerator")),
                field=f"resources.{name}",
                code="accelerator-not-supported",
            )
    for name, most in image.maximum_slots.items():
        if slots[name] > most:
            raise _out_of_bounds(name, slots[name], image, most, "above-maximum")


def _out_of_bounds(name: str, asked: int, image: Image, bound: int, code: str) -> UserError:
    wanted, limit, told = format_amount(name, asked), format_amount(name, bound), amount_in_words(name, asked)
    below = code == "below-minimum"
    return UserError(
        Message("{told} requested, but {image} needs at least {limit}.", told=told, image=image.name, limit=limit)
        if below
        else Message(
            "{told} requested, but {image} may have at most {limit}.", told=told, image=image.name, limit=limit
        ),
        field=f"resources.{name}",
        code=code,
        wanted=wanted,
        limit=limit,
    )


def shm_of(spec: SessionSpec, preset: ResourcePreset | None, slots: Slots, usual: str = "") -> int:
    """Return the bytes of shared memory of each kernel, which are a part of its memory.

    The request overrides the preset, which overrides the default: ``usual`` of image or group, at most half of the
    memory. Raises UserError if shared memory would take all the memory.
    """
    memory = slots["mem"] // MILLI
    if spec.shm:
        shm = parse_size(spec.shm, field="shm", typed=True)
    elif preset and preset.shm_bytes:
        shm = preset.shm_bytes
    else:
        return automatic_shm(memory, usual)
    if shm >= memory:
        raise UserError(
            "Shared memory is part of the memory: {shm} requested, memory is {memory}.",
            shm=format_size(shm),
            memory=format_size(memory),
            field="shm",
            code="shm-too-large",
        )
    return shm


def usual_shm(usual: str = "") -> tuple[tuple[int, int], ...]:
    """Return pairs (least memory, default shared memory) in bytes, the largest first. ``usual``: the default of image
    or group. The default of a kernel is at most half of its memory."""
    return ((0, parse_size(usual, field="shm")),) if usual else _USUAL_SHM


def automatic_shm(memory: int, usual: str = "") -> int:
    """Return the default bytes of shared memory for a kernel with this memory."""
    return min(next(shm for least, shm in usual_shm(usual) if memory >= least), memory // 2)


def check_reach(
    total: Slots, group: ResourceGroup, designated: Collection[str] = (), kernels: Sequence[Slots] = ()
) -> None:
    """Reject amounts that no registered agent could ever hold. Lost agents count, too.

    Agents that never reported a capacity are ignored; if no other agents exist, nothing is rejected. ``designated``:
    ids of the only agents that count. ``kernels``: the amounts of each kernel, which has to fit on one machine of an
    agent.
    """
    chosen = list_of([UUID(one) for one in designated]) if designated else None
    # Many machines are equal, so each size is checked once.
    reaches = [_Reach.read(*row) for row in _reaches(group.pk, chosen)]
    if not reaches or any(reach.holds(total, kernels) for reach in reaches):
        return
    where = (
        Message("designated agent of {group}", group=group.name)
        if designated
        else Message("agent of {group}", group=group.name)
    )
    _refuse_beyond(total, [reach.capacity for reach in reaches], where)
    wide = [reach for reach in reaches if total.fits(reach.capacity)]
    if wide:
        machine = Message("machine of an {where}", where=where)
        for kernel in kernels:
            _refuse_beyond(kernel, [place for reach in wide for place in reach.places], machine)
        where = machine
    raise UserError(
        "No single {where} has all of {total}.",
        where=where,
        total=max(kernels, key=lambda kernel: sum(kernel.values())).describe() if wide else total.describe(),
        field="resources",
        code="bigger-than-any-agent",
    )


@dataclass(frozen=True, slots=True)
class _Reach:
    """The capacity of an agent, and the capacity of each of its largest machines."""

    capacity: Slots
    places: Sequence[Slots]

    @classmethod
    def read(cls, capacity: str, widest: str) -> _Reach:
        whole = stored_slots(capacity)
        return cls(whole, [Slots.parse(one) for one in json.loads(widest)] or [whole])

    def holds(self, total: Slots, kernels: Sequence[Slots]) -> bool:
        fits = all(any(kernel.fits(place) for place in self.places) for kernel in kernels)
        return fits and total.fits(self.capacity)


def _refuse_beyond(wanted: Slots, rooms: Sequence[Slots], where: str) -> None:
    """Raise UserError about the first amount that exceeds all of ``rooms``."""
    for name, amount in wanted.items():
        most = max(room[name] for room in rooms)
        if amount > most:
            raise UserError(
                "{asked} requested, but no {where} has more than {most}.",
                asked=amount_in_words(name, amount),
                where=where,
                most=format_amount(name, most),
                field=f"resources.{name}",
                code="bigger-than-any-agent",
                wanted=format_amount(name, amount),
                limit=format_amount(name, most),
            )


def _reaches(group_id: int, chosen: str | None) -> QuerySet[Any, Any]:
    agents = Agent.objects.registered().filter(resource_group=group_id).exclude(capacity={})
    if chosen is not None:
        agents = agents.filter(pk__in=listed(chosen))
    texts = Cast("capacity", TextField()), Cast("widest", TextField())
    return agents.order_by().values_list(*texts).distinct()
