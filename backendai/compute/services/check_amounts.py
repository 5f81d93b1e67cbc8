"""The amounts of a launch request: what is asked, what the image needs at least, what the agents have at most."""

from __future__ import annotations

from collections.abc import Collection

from django.db.models import F, TextField
from django.db.models.functions import Cast

from backendai.accounts.models import User
from backendai.catalog.models import Image, ResourcePreset
from backendai.cluster.models import Agent, ResourceGroup
from backendai.cluster.site import check_caps
from backendai.cluster.slot_types import check_steps
from backendai.compute.services.ledger import slots_of as stored_slots
from backendai.compute.spec import SessionSpec
from backendai.core.errors import UserError
from backendai.core.slots import LARGEST, MILLI, Slots, format_amount, format_size, parse_amount, parse_size

_DEFAULTS = {"cpu": 1 * MILLI, "mem": 1024 * 2**20 * MILLI}
_SMALLEST = {"cpu": MILLI // 10, "mem": 16 * 2**20 * MILLI}


def preset_of(user: User, spec: SessionSpec, group: ResourceGroup) -> ResourcePreset | None:
    """Return the preset that is asked for, if any: the group's own of this name, or else the one for all groups."""
    if not spec.preset:
        return None
    presets = ResourcePreset.objects.visible_to(user).in_group(group).filter(name=spec.preset)
    found: ResourcePreset | None = presets.order_by(F("resource_group").asc(nulls_last=True)).first()
    if found is None:
        raise UserError(f"There is no preset {spec.preset!r} for {group.name}.", field="preset", code="unknown-preset")
    return found


def slots_of(spec: SessionSpec, preset: ResourcePreset | None, image: Image) -> Slots:
    """Return the amounts of each kernel: those asked for over the preset's over the defaults."""
    least, most = image.minimum_slots, image.maximum_slots
    base = {name: min(max(usual, least[name]), most.get(name, LARGEST)) for name, usual in _DEFAULTS.items()}
    if preset:
        base |= dict(preset.amounts)
    # Not Slots.parse: a zero that somebody typed must stand against the default.
    asked = {name: parse_amount(name, value, field=f"resources.{name}") for name, value in spec.resources.items()}
    slots = Slots(base | asked)
    check_steps(slots)
    check_caps(slots)
    return slots


def check_bounds(slots: Slots, image: Image) -> None:
    """Refuse less than the image, or anything, can run with, and more than the image may have."""
    minimum = image.minimum_slots
    for name in _SMALLEST.keys() | set(minimum):
        least = max(_SMALLEST.get(name, 0), minimum[name])
        if slots[name] < least:
            raise _out_of_bounds(name, slots[name], image, "needs at least", least, "below-minimum")
    for name, most in image.maximum_slots.items():
        if slots[name] > most:
            raise _out_of_bounds(name, slots[name], image, "may have at most", most, "above-maximum")


def _out_of_bounds(name: str, asked: int, image: Image, verb: str, bound: int, code: str) -> UserError:
    wanted, limit = format_amount(name, asked), format_amount(name, bound)
    return UserError(
        f"{name}: {wanted} asked, but {image.name} {verb} {limit}.",
        field=f"resources.{name}",
        code=code,
        wanted=wanted,
        limit=limit,
    )


def shm_of(spec: SessionSpec, preset: ResourcePreset | None, slots: Slots, usual: str = "") -> int:
    """Return the bytes of shared memory of each kernel, those asked for over the preset's over the usual; they are part
    of its memory. ``usual``: of the group; never more than half of the memory."""
    memory = slots["mem"] // MILLI
    if spec.shm:
        shm = parse_size(spec.shm, field="shm")
    elif preset and preset.shm_bytes:
        shm = preset.shm_bytes
    else:
        return min(parse_size(usual, field="shm") if usual else _usual_shm(memory), memory // 2)
    if shm >= memory:
        raise UserError(
            f"Shared memory is part of the memory: {format_size(shm)} asked, memory is {format_size(memory)}.",
            field="shm",
            code="shm-too-large",
        )
    return shm


def _usual_shm(memory: int) -> int:
    return 2**30 if memory >= 4 * 2**30 else 64 * 2**20


def check_reach(slots: Slots, group: ResourceGroup, cluster_size: int, designated: Collection[str] = ()) -> None:
    """Refuse what no registered agent could ever give, also a lost one; with no agent at all the session may wait.
    When agents are ``designated`` (ids), only they count. One whose engine never answered may have anything."""
    agents = Agent.objects.registered().filter(resource_group=group).exclude(capacity={})
    if designated:
        agents = agents.filter(pk__in=designated)
    texts = agents.order_by().values_list(Cast("capacity", TextField()), flat=True)
    capacities = [stored_slots(text) for text in texts.distinct()]  # many machines are alike
    total = slots * cluster_size
    if not capacities or any(total.fits(capacity) for capacity in capacities):
        return
    where = f"designated agent of {group.name}" if designated else f"agent of {group.name}"
    for name, wanted in total.items():
        most = max(capacity[name] for capacity in capacities)
        if wanted > most:
            raise UserError(
                f"{name}: {format_amount(name, wanted)} asked, but no {where} has more than "
                f"{format_amount(name, most)}.",
                field=f"resources.{name}",
                code="bigger-than-any-agent",
                wanted=format_amount(name, wanted),
                limit=format_amount(name, most),
            )
    raise UserError(
        f"No single {where} has all of {total.describe()}.", field="resources", code="bigger-than-any-agent"
    )
