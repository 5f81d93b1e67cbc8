"""NVIDIA GPUs: whole ones (``cuda.device``), shares of one (``cuda.shares``), or MIG instances
(``cuda.mig-<profile>``).

An agent offers GPUs either whole or in shares, never both. MIG instances are offered individually instead of their GPU.
The engine receives the devices' UUIDs, as a number of devices would always mean the first ones.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import pynvml
from pynvml import NVMLError

from backendai.agent.accelerators import sysfs
from backendai.agent.accelerators.base import Accelerator, Device, Found, Grant, MeasuredUse, Part, ProcessUse
from backendai.agent.accelerators.cuda_grant import Mps, grant_to_container, grant_to_process
from backendai.agent.accelerators.nvml import CriticalErrors, ask, lacks_driver, processes_on, text
from backendai.base.wire.messages import Note

logger = logging.getLogger(__name__)

Offer = Literal["device", "shares"]
VENDOR = "0x10de"
_MIG = " MIG "
_NOBODY = (pynvml.NVML_SUCCESS, pynvml.NVML_ERROR_NOT_FOUND)
_MIB = 2**20


class Cuda(Accelerator):
    """``offer``: how GPUs are allocated. ``mps``: the MPS daemon that enforces shares. ``sys``: the machine's sysfs."""

    kind = "cuda"

    def __init__(self, offer: Offer = "device", *, mps: Mps | None = None, sys: Path = Path("/sys")) -> None:
        self._slot, self._mps, self._sys = f"cuda.{offer}", mps or Mps(None), sys
        self._is_open = False
        self._errors = CriticalErrors()
        self._handles: dict[str, Any] = {}
        self._known: dict[int, list[Device]] = {}  # each GPU's last known devices
        self._since: dict[str, int] = {}  # id → time stamp of the newest sample of processes

    def discover(self) -> Found:
        cards = sysfs.count_cards(self._sys, VENDOR)
        try:
            handles = self._open()
            faults = {uuid: f"critical error (Xid) {number}" for uuid, number in self._errors.by_device().items()}
            self._handles = {}
            devices = [device for number, handle in handles for device in self._devices(number, handle, faults)]
        except NVMLError as error:
            self.close()
            if lacks_driver(error) and not cards:
                return Found()
            return Found(notes=(_no_driver(error, cards),), is_present=True)
        notes = list(self._mps.notes()) if any(device.slot == "cuda.shares" for device in devices) else []
        return Found(tuple(devices), tuple(notes), is_present=bool(devices or cards))

    def samples(self, devices: Sequence[Device]) -> dict[str, MeasuredUse]:
        uses = {}
        for device in devices:
            handle = self._handles.get(device.id)
            if handle is None:
                continue
            try:
                uses[device.id] = self._use(device.id, handle)
            except NVMLError as error:  # the next reading reports the fault
                logger.info("GPU %s: %s", device.id, error)
        return uses

    def container(self, parts: Sequence[Part]) -> Grant:
        return grant_to_container(parts, self._mps)

    def native(self, parts: Sequence[Part]) -> Grant:
        return grant_to_process(parts)

    def close(self) -> None:
        if not self._is_open:
            return
        self._is_open = False
        self._handles = {}
        self._errors.close()
        try:
            pynvml.nvmlShutdown()
        except NVMLError as error:
            logger.info("%s", error)

    def _open(self) -> list[tuple[int, Any]]:
        """Return number and handle of every GPU; the error instead of a handle for a failing GPU."""
        was_open = self._is_open
        if not was_open:
            pynvml.nvmlInit()
            self._is_open = True
        handles: list[tuple[int, Any]] = []
        for number in range(pynvml.nvmlDeviceGetCount()):
            try:
                handles.append((number, pynvml.nvmlDeviceGetHandleByIndex(number)))
            except NVMLError as error:
                handles.append((number, error))
        if not was_open:
            self._errors.listen([handle for _, handle in handles if not isinstance(handle, NVMLError)])
        return handles

    def _devices(self, number: int, handle: Any, faults: dict[str, str]) -> Iterator[Device]:
        """Yield the devices of one GPU. A failing GPU yields its last known devices, with the driver's fault."""
        try:
            if isinstance(handle, NVMLError):
                raise handle
            uuid = text(pynvml.nvmlDeviceGetUUID(handle))
            fault = faults.get(uuid) or _fault_of(handle)
            pieces = list(self._pieces(handle)) if _is_cut(handle) else []
            if not pieces:
                fault = "MIG is on, but it has no instances" if _is_cut(handle) else fault
                pieces = [(handle, uuid, self._slot)]
            devices = [self._device(number, handle, *piece, fault=fault) for piece in pieces]
        except NVMLError as error:
            unknown = [Device(f"GPU-{number}", self._slot, number=number)]
            yield from (replace(device, fault=str(error)) for device in self._known.get(number) or unknown)
            return
        self._known[number] = devices
        yield from devices

    def _device(self, number: int, card: Any, handle: Any, uuid: str, slot: str, *, fault: str) -> Device:
        memory = ask(pynvml.nvmlDeviceGetMemoryInfo, handle)
        pci = ask(pynvml.nvmlDeviceGetPciInfo, card)
        minor = ask(pynvml.nvmlDeviceGetMinorNumber, card)
        name = ask(pynvml.nvmlDeviceGetName, handle)
        ask(pynvml.nvmlDeviceGetUtilizationRates, handle)  # raises NVMLError for a lost GPU
        self._handles[uuid] = handle
        return Device(
            id=uuid,
            slot=slot,
            model=text(name) if name else "",
            memory=int(memory.total) if memory else None,
            number=number,
            numa=sysfs.numa_node(self._sys, text(pci.busId)) if pci else None,
            fault=fault,
            paths=(f"/dev/nvidia{minor}",) if minor is not None else (),
        )

    def _pieces(self, card: Any) -> Iterator[tuple[Any, str, str]]:
        """Yield handle, UUID and slot of every MIG instance of a GPU."""
        for place in range(ask(pynvml.nvmlDeviceGetMaxMigDeviceCount, card) or 0):
            piece = ask(pynvml.nvmlDeviceGetMigDeviceHandleByIndex, card, place)
            if piece is not None:
                yield piece, text(pynvml.nvmlDeviceGetUUID(piece)), f"cuda.mig-{_profile(piece)}"

    def _use(self, uuid: str, handle: Any) -> MeasuredUse:
        rates = ask(pynvml.nvmlDeviceGetUtilizationRates, handle)
        memory = ask(pynvml.nvmlDeviceGetMemoryInfo, handle)
        busy = self._busy_processes(uuid, handle)
        held = processes_on(handle)
        idle = None if busy is None else 0.0
        busy = busy or {}
        return MeasuredUse(
            util_pct=float(rates.gpu) if rates else None,
            mem_used=int(memory.used) if memory else None,
            processes={pid: ProcessUse(busy.get(pid, idle), held.get(pid)) for pid in held.keys() | busy.keys()},
        )

    def _busy_processes(self, uuid: str, handle: Any) -> dict[int, float] | None:
        """Return each process's percent of GPU time since the last call; None if the GPU does not report it."""
        since = self._since.get(uuid, 0)
        try:
            told = pynvml.nvmlDeviceGetProcessUtilization(handle, since)
        except NVMLError as error:
            return {} if error.value in _NOBODY else None
        newest: dict[int, tuple[int, float]] = {}
        for one in told:
            if one.timeStamp >= newest.get(one.pid, (0, 0.0))[0]:
                newest[one.pid] = one.timeStamp, float(one.smUtil)
        self._since[uuid] = max((stamp for stamp, _ in newest.values()), default=since)
        return {pid: percent for pid, (_, percent) in newest.items()}


def _is_cut(handle: Any) -> bool:
    mode = ask(pynvml.nvmlDeviceGetMigMode, handle)
    return mode is not None and mode[0] == pynvml.NVML_DEVICE_MIG_ENABLE


def _profile(piece: Any) -> str:
    """Return the MIG profile as slot names contain it: ``1g.10gb``."""
    name = text(ask(pynvml.nvmlDeviceGetName, piece) or "")
    profile = name.partition(_MIG)[2].strip()
    if not profile:
        shape = ask(pynvml.nvmlDeviceGetAttributes, piece)
        memory = ask(pynvml.nvmlDeviceGetMemoryInfo, piece)
        gigabytes = round((memory.total if memory else 0) / 1024 / _MIB)
        profile = f"{shape.gpuInstanceSliceCount if shape else 1}g.{gigabytes}gb"
    return profile.lower().replace("+", "-")


def _fault_of(handle: Any) -> str:
    rows = ask(pynvml.nvmlDeviceGetRemappedRows, handle)
    return "its memory is defective, and no row is left to replace a broken one" if rows and rows[3] else ""


def _no_driver(error: NVMLError, cards: int) -> Note:
    count = f"{cards} NVIDIA GPU{'' if cards == 1 else 's'}" if cards else "NVIDIA's library"
    return Note(
        code="nvidia-driver",
        message=f"This machine has {count}, but the driver cannot be used: {error}. No session gets a GPU here.",
        fix="Install or update NVIDIA's driver until nvidia-smi lists the GPUs, then start the agent again.",
    )
