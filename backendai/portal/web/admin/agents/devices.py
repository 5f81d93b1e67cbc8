"""The accelerators of an agent from its last report, and the sessions that hold them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from django.utils.translation import gettext as _

from backendai.domain.cluster.models import Agent
from backendai.domain.compute.models import Kernel

_SPEAKING = (Agent.Status.ALIVE, Agent.Status.DRAINING)


@dataclass(frozen=True, slots=True)
class DeviceRow:
    """One device.

    ``util`` and ``mem`` are in per cent, None if unknown. ``state``: ``well``, ``faulty`` or ``on paper``. ``holders``:
    each session that holds a part of the device, with its amount and the measured use.
    """

    id: str
    slot: str
    model: str
    util: float | None
    mem: float | None
    numa: int | None
    state: str
    note: str
    holders: Sequence[tuple[Kernel, str, float | None]]


def device_rows(agent: Agent, kernels: Iterable[Kernel]) -> list[DeviceRow]:
    """Return the agent's devices by slot: the offered ones first, then the faulty ones."""
    said: dict[str, dict[str, Any]] = agent.live.get("devices") or {}
    offered = {device: slot for slot, devices in sorted(agent.devices.items()) for device in devices}
    slots = offered | {device: one.get("slot", "") for device, one in said.items() if device not in offered}
    given = defaultdict[str, list[Kernel]](list)
    for kernel in kernels:
        for device in {device for devices in kernel.devices.values() for device in devices}:
            given[device].append(kernel)
    is_now = agent.status in _SPEAKING
    return [
        _row(device, slot, said.get(device, {}), given[device], is_offered=device in offered, is_now=is_now)
        for device, slot in slots.items()
    ]


def _row(
    device: str, slot: str, said: dict[str, Any], kernels: Iterable[Kernel], *, is_offered: bool, is_now: bool
) -> DeviceRow:
    total, used = said.get("mem_total"), said.get("mem_used")
    users: dict[str, Any] = said.get("kernels") or {} if is_now else {}
    is_well = is_offered and said.get("healthy", True)
    return DeviceRow(
        id=device,
        slot=slot,
        model=said.get("model") or "",
        util=said.get("util_pct") if is_now else None,
        mem=100 * used / total if is_now and total and used is not None else None,
        numa=said.get("numa"),
        state=_("failed") if not is_well else _("simulated") if said.get("mock") else _("OK"),
        note=said.get("note") or "",
        holders=[
            (kernel, kernel.devices.get(slot, {}).get(device, ""), users.get(str(kernel.pk), {}).get("util_pct"))
            for kernel in kernels
        ],
    )
