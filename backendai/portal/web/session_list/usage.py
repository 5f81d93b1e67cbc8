"""The usage of running sessions, for the rows of the list."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from backendai.base.core.slots import MILLI, is_accelerator
from backendai.base.texts.translation import gettext as _
from backendai.domain.cluster.slot_types import in_order
from backendai.domain.compute.models import ComputeSession
from backendai.domain.usage.models import UsageSample
from backendai.domain.usage.samples import latest
from backendai.portal.web.dashboard.resources import name_of_slot
from backendai.portal.web.session.usage import amount_text

_FRESH = timedelta(minutes=2)
_MOST_BARS = 3


@dataclass(frozen=True, slots=True)
class UseBar:
    """The usage of one slot: a short name, per cent of the session's amount, and a text."""

    short: str
    percent: int
    title: str


def note_usage(sessions: Iterable[Any], *, now: datetime) -> None:
    """Set ``usage`` of each session: its bars, empty without a recent measurement, None unless it runs.

    One query; none if no session runs.
    """
    every = list(sessions)
    running = [session for session in every if session.is_running]
    samples = latest([session.pk for session in running]) if running else {}
    for session in every:
        session.usage = None
    for session in running:
        fresh = [one for one in samples.get(session.pk, {}).values() if now - one.at < _FRESH]
        session.usage = _bars(session, fresh)


def _bars(session: ComputeSession, samples: Collection[UsageSample]) -> list[UseBar]:
    slots, total = session.kernel_slots, session.total
    found = []
    for slot in in_order(slots.keys()):
        each = slots[slot] / MILLI
        values = [value for value in (_used(sample, slot, each) for sample in samples) if value is not None]
        if not values or not each:
            continue
        held = total[slot] / MILLI
        words = {"name": name_of_slot(slot), "used": amount_text(slot, sum(values)), "held": amount_text(slot, held)}
        title = _("%(name)s: %(used)s of %(held)s used") % words
        found.append(UseBar(_short(slot), min(round(100 * sum(values) / held), 100), title))
    return found[:_MOST_BARS]


def _used(sample: UsageSample, slot: str, held: float) -> float | None:
    """Return the usage of a slot by one kernel, in the slot's unit; None if not measured."""
    if is_accelerator(slot):
        util: Any = (sample.devices.get(slot) or {}).get("util")
        return None if util is None else util * held
    value: float | None = {"cpu": sample.cpu, "mem": sample.mem_bytes}.get(slot)
    return value


def _short(slot: str) -> str:
    if is_accelerator(slot):
        return _("GPU") if slot.startswith("cuda") else name_of_slot(slot)
    return {"cpu": _("CPU"), "mem": _("Mem")}.get(slot, slot)
