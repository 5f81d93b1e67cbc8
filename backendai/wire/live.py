"""How busy a node and its accelerators are, as the node says with every sync."""

from __future__ import annotations

from typing import Annotated
from uuid import UUID

from pydantic import Field

from backendai.wire.fields import Message, Name, Percent, Sentence, Size

MOST_DEVICES = 128  # of one node: eight GPUs cut into seven pieces are 56
Devices = Annotated[list[Name], Field(max_length=1024)]  # ids of those that are handed out as one slot
MOST_USERS = 64  # kernels whose processes are told of one device


class DeviceUse(Message):
    """What one kernel's processes use of a device; None: the driver does not tell."""

    util_pct: Percent = None
    mem_used: Size = None


class DeviceSample(Message):
    """One accelerator as it is now. ``slot``: what it is handed out as (empty: not at all). ``numa``: the memory node
    of the machine that it is near to. ``kernels``: what their processes use, where processes are known."""

    slot: Name = ""
    model: Name = ""
    util_pct: Percent = None
    mem_used: Size = None
    mem_total: Size = None
    numa: int | None = Field(default=None, ge=0, lt=2**15)
    healthy: bool = True
    mock: bool = False
    note: Sentence = ""
    kernels: dict[UUID, DeviceUse] = Field(default_factory=dict, max_length=MOST_USERS)


class LiveSample(Message):
    """How busy a node is now: the machine, and its accelerators by device id."""

    cpu_pct: Percent = None
    load: float | None = Field(default=None, ge=0.0, lt=1e6, allow_inf_nan=False)
    mem_used: Size = None
    mem_total: Size = None
    disk_free: Size = None
    disk_total: Size = None
    devices: dict[Name, DeviceSample] = Field(default_factory=dict, max_length=MOST_DEVICES)
