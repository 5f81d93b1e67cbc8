"""Resource use of an agent's kernels since its last measurement, sent with a sync."""

from __future__ import annotations

import math
from typing import Annotated
from uuid import UUID

from pydantic import AfterValidator, Field

from backendai.base.wire.fields import Generation, Message, Name, Order, Size
from backendai.base.wire.live import MOST_DEVICES, MOST_USERS, DeviceUse

MOST_KERNELS = 512  # in one report; the others follow with the next sync
LONGEST_SECONDS = 900.0
_MOST_CORES = 4096.0
_LAST_SECOND = 2.0**32  # latest time in epoch seconds: the year 2106


def _cores(value: float | None) -> float | None:
    return None if value is None or not math.isfinite(value) else round(min(max(value, 0.0), _MOST_CORES), 4)


Cores = Annotated[float | None, AfterValidator(_cores)]


class KernelUsage(Message):
    """A kernel's use over ``seconds``. ``cpu``: the mean in cores. ``mem_bytes``: the memory at the end.
    ``memory_kills``: the programs that were ended at the memory limit since the kernel's start. The other fields: bytes
    transferred. None: not measurable."""

    kernel_id: UUID
    generation: Generation
    seconds: float = Field(gt=0.0, le=LONGEST_SECONDS, allow_inf_nan=False)
    cpu: Cores = None
    mem_bytes: Size = None
    net_rx: Size = None
    net_tx: Size = None
    io_read: Size = None
    io_write: Size = None
    memory_kills: int | None = Field(default=None, ge=0, lt=2**31)


class DeviceUsage(DeviceUse):
    """Mean use of an accelerator, in total and by kernel. ``is_complete``: all its processes are known, so kernels that
    are not named did not use it."""

    is_complete: bool = False
    kernels: dict[UUID, DeviceUse] = Field(default_factory=dict, max_length=MOST_USERS)


class UsageReport(Message):
    """The measurements of one round. ``at``: when the round ended, in epoch seconds on the portal's clock. The portal
    counts a report once, even if it is received twice."""

    at: float = Field(ge=0.0, lt=_LAST_SECOND, allow_inf_nan=False)
    kernels: list[KernelUsage] = Field(default_factory=list, max_length=MOST_KERNELS)
    devices: dict[Name, DeviceUsage] = Field(default_factory=dict, max_length=MOST_DEVICES)


class HomeLook(Order):
    """Disk use of a home folder, in bytes.

    ``pip_bytes`` and ``packages`` count ``~/.local``; ``home_bytes`` counts the rest. Unless ``complete``, the numbers
    are lower bounds. ``disk_used`` and ``disk_limit``: of the disk that contains the home and the temporary folder
    (None: other kernels share this disk).
    """

    home_bytes: int = Field(ge=0)
    pip_bytes: int = Field(ge=0)
    packages: int = Field(ge=0)
    complete: bool
    disk_used: int | None = Field(default=None, ge=0)
    disk_limit: int | None = Field(default=None, ge=0)
