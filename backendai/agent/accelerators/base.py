"""The contract of an accelerator: what finds devices of one make, says how busy they are and hands them to kernels.

Nothing here raises where hardware, driver or library is missing, old or broken: what cannot be used is left out, with a
note; a device that fails is told with its fault, and is handed to no new kernel. All methods may be repeated, and are
called from one thread at a time, except ``container`` and ``native``, which ask no hardware.
"""

from __future__ import annotations

import abc
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

from backendai.wire.messages import Note


@dataclass(frozen=True, slots=True)
class Device:
    """One device that kernels can be given, as one unit of ``slot`` (a whole one, or 1.00 to be shared).

    ``id`` stays the same over restarts of the machine. ``number``: its place in the machine's own order. ``numa``: the
    memory node it is near to. ``fault``: why no new kernel gets it; empty when it is well. ``paths``: its device files.
    ``memory``: bytes, None when not known.
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
    """What a look found. ``is_present``: the hardware is there, even if nothing of it can be used."""

    devices: tuple[Device, ...] = ()
    notes: tuple[Note, ...] = ()
    is_present: bool = False


@dataclass(frozen=True, slots=True)
class ProcessUse:
    """What one process uses of a device: per cent of its time, bytes of its memory; None when not known."""

    util_pct: float | None = None
    mem_used: int | None = None


@dataclass(frozen=True, slots=True)
class Use:
    """How busy a device is, and by whom: processes by their number on the machine."""

    util_pct: float | None = None
    mem_used: int | None = None
    processes: Mapping[int, ProcessUse] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Part:
    """How much of a device a kernel gets: thousandths of it."""

    device: Device
    amount: int

    @property
    def memory(self) -> int | None:
        """Its part of the device's memory in bytes."""
        return None if self.device.memory is None else self.device.memory * self.amount // 1000


@dataclass(frozen=True, slots=True)
class Grant:
    """What a kernel gets for its devices: variables, which go before everybody else's; options of the container's host
    (as in the engine's create call); device files for a process."""

    environ: Mapping[str, str] = field(default_factory=dict)
    host: Mapping[str, Any] = field(default_factory=dict)
    paths: tuple[str, ...] = ()


class Accelerator(abc.ABC):
    """The devices of one make. ``kind`` is what the names of its slots begin with."""

    kind: ClassVar[str]

    @abc.abstractmethod
    def discover(self) -> Found:
        """Return the devices that are present now, in the machine's own order."""

    @abc.abstractmethod
    def samples(self, devices: Sequence[Device]) -> dict[str, Use]:
        """Return the usage of these devices by id; devices that report none are left out."""

    @abc.abstractmethod
    def container(self, parts: Sequence[Part]) -> Grant:
        """Return the grant that gives a container exactly these devices."""

    @abc.abstractmethod
    def native(self, parts: Sequence[Part]) -> Grant:
        """Return the grant that gives a native process these devices; a program could still use others."""

    @abc.abstractmethod
    def close(self) -> None:
        """Unload the driver's library. May be called twice."""
