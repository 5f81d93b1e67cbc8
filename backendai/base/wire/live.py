"""Current load of an agent and its accelerators, sent with every sync."""

from __future__ import annotations

from typing import Annotated
from uuid import UUID

from pydantic import Field

from backendai.base.wire.fields import Message, Name, Percent, Sentence, Size

MOST_DEVICES = 128  # of one agent: eight GPUs cut into seven pieces are 56
Devices = Annotated[list[Name], Field(max_length=1024)]  # ids of the devices under one slot
MOST_USERS = 64  # kernels that a sample of one device names


class DeviceUse(Message):
    """A kernel's use of a device. None: the driver does not report the value."""

    util_pct: Percent = None
    mem_used: Size = None


class DeviceSample(Message):
    """The current state of an accelerator. ``slot``: the slot under which it is allocated (empty: it cannot be
    allocated). ``numa``: the machine's NUMA node that is nearest to it. ``kernels``: use by kernel, if its processes
    are known."""

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
    """The current load of an agent: of the machine, and of its accelerators by device id."""

    cpu_pct: Percent = None
    load: float | None = Field(default=None, ge=0.0, lt=1e6, allow_inf_nan=False)
    mem_used: Size = None
    mem_total: Size = None
    disk_free: Size = None
    disk_total: Size = None
    devices: dict[Name, DeviceSample] = Field(default_factory=dict, max_length=MOST_DEVICES)
