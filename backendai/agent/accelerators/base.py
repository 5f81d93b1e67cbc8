"""The interface of accelerators: a class finds devices of one vendor, measures their use and grants them to kernels.

Missing, old or broken hardware, drivers and libraries raise nothing: unusable devices are left out, with a note. A
failing device is listed with its fault and given to no new kernel. All methods can be repeated. They are called from
one thread at a time, except ``container`` and ``native``, which do not access hardware.
"""

from __future__ import annotations

import abc
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

from backendai.base.core.slots import decimal_text
from backendai.base.wire.messages import Note


@dataclass(frozen=True, slots=True)
class Device:
    """A device that kernels can be given, as one unit of ``slot`` (whole, or 1.00 to be shared).

    ``id`` stays the same when the machine restarts. ``number``: its position on the machine. ``numa``: the nearest NUMA
    node. ``fault``: the reason why no new kernel gets it; empty for a healthy device. ``paths``: its device files.
    ``memory``: bytes; None: unknown.
    """

    id: str
    slot: str
    model: str = ""
    memory: int | None = None
    number: int = 0
    numa: int | None = None
    fault: str = ""
    paths: tuple[str, ...] = ()
    mock: bool = False


@dataclass(frozen=True, slots=True)
class Found:
    """The result of ``discover``. ``is_present``: the machine has such hardware, even if none of it is usable."""

    devices: tuple[Device, ...] = ()
    notes: tuple[Note, ...] = ()
    is_present: bool = False


@dataclass(frozen=True, slots=True)
class ProcessUse:
    """One process's use of a device: percent of its time, and bytes of its memory. None: unknown."""

    util_pct: float | None = None
    mem_used: int | None = None


@dataclass(frozen=True, slots=True)
class MeasuredUse:
    """The use of a device, in total and by process (process id on the machine)."""

    util_pct: float | None = None
    mem_used: int | None = None
    processes: Mapping[int, ProcessUse] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Part:
    """A kernel's part of a device, in thousandths."""

    device: Device
    amount: int

    @property
    def memory(self) -> int | None:
        """The kernel's part of the device's memory, in bytes; None: unknown."""
        return None if self.device.memory is None else self.device.memory * self.amount // 1000


@dataclass(frozen=True, slots=True)
class Grant:
    """The settings that give a kernel its devices: environment variables, which override all others; host options in
    the format of the engine's create call; device files for a native process."""

    environ: Mapping[str, str] = field(default_factory=dict)
    host: Mapping[str, Any] = field(default_factory=dict)
    paths: tuple[str, ...] = ()


# Some engines grant GPUs by these variables: an "all" from an image or a user would grant every GPU.
_CLOSED = {"NVIDIA_VISIBLE_DEVICES": "void", "CUDA_VISIBLE_DEVICES": "", "GPU_COUNT": "0", "N_GPUS": "0"}
NOTHING = Grant(_CLOSED)


def described(parts: Sequence[Part]) -> Mapping[str, str]:
    """Return the environment variables that describe these parts; without parts, variables that hide all GPUs.

    ``GPU_CONFIG``: ``<device id>=<amount>,…``. ``TF_GPU_MEMORY_ALLOC``: the smallest memory limit of the devices, in
    MiB.
    """
    if not parts:
        return _CLOSED
    memory = [part.memory for part in parts if part.memory]
    values = {
        "GPU_TYPE": parts[0].device.slot.partition(".")[0],
        "GPU_MODEL_NAME": parts[0].device.model,
        "GPU_CONFIG": ",".join(f"{part.device.id}={decimal_text(part.amount)}" for part in parts),
        "GPU_COUNT": str(len(parts)),
        "N_GPUS": str(len(parts)),
    }
    return _CLOSED | values | ({"TF_GPU_MEMORY_ALLOC": str(min(memory) // 2**20)} if memory else {})


class Accelerator(abc.ABC):
    """The devices of one vendor. ``kind``: the first part of their slots' names."""

    kind: ClassVar[str]

    @abc.abstractmethod
    def discover(self) -> Found:
        """Return the devices that are present now, in the machine's own order."""

    def samples(self, devices: Sequence[Device]) -> dict[str, MeasuredUse]:
        """Return the use of these devices by id, without devices that report none."""
        return {}

    def container(self, parts: Sequence[Part]) -> Grant:
        """Return the grant that gives a container exactly these devices."""
        return Grant()

    def native(self, parts: Sequence[Part]) -> Grant:
        """Return the grant for a native process; its program could still use other devices."""
        return Grant()

    def close(self) -> None:  # noqa: B027 - without a library there is nothing to do
        """Unload the driver's library. May be called twice."""
