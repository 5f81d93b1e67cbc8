"""All accelerators of an agent. A thread of their own reads them, so that a hanging driver blocks nothing else."""

from __future__ import annotations

import contextlib
import logging
import re
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any
from uuid import UUID

from backendai.agent.accelerators.base import NOTHING, Accelerator, Device, Found, Grant, MeasuredUse, Part, described
from backendai.agent.accelerators.counters import DeviceReadings
from backendai.agent.accelerators.offer import Offer, offer_of
from backendai.agent.backends.base import BackendError, StartFailed
from backendai.base.core.slots import MILLI, Slots, parse_amount
from backendai.base.wire.messages import KernelSighting, KernelSpec, Note
from backendai.base.wire.usage import DeviceUsage

_CONTAINER = re.compile(r"[0-9a-f]{64}")
_NATIVE = re.compile(r"backendai-([0-9a-f]{8}-[0-9a-f-]{27})")
_MARK = b"BACKENDAI_KERNEL_ID="


def kernels_of(pids: Iterable[int], kernels: Mapping[str, UUID], proc: Path = Path("/proc")) -> dict[int, UUID]:
    """Return the kernel of each process, without processes of no kernel. ``kernels``: this agent's kernels by container
    id.

    The control group determines the kernel. The mark in the environment, for native kernels without a control group,
    counts only outside all containers, as programs can set it.
    """
    ours = set(kernels.values())
    found = {}
    for pid in pids:
        kernel = _kernel_of(proc / str(pid), kernels)
        if kernel in ours:
            found[pid] = kernel
    return found


def _kernel_of(process: Path, kernels: Mapping[str, UUID]) -> UUID | None:
    try:
        groups = (process / "cgroup").read_text(errors="replace")
        containers = _CONTAINER.findall(groups)
        if containers:
            return next((kernels[container] for container in reversed(containers) if container in kernels), None)
        if native := _NATIVE.search(groups):
            return UUID(native[1])
        marks = [word for word in (process / "environ").read_bytes().split(b"\0") if word.startswith(_MARK)]
        return UUID(marks[-1].removeprefix(_MARK).decode()) if marks else None
    except (OSError, ValueError):
        return None


_MODEL = "Mock accelerator"


class Mock(Accelerator):
    """As many devices of each slot as ``amounts`` (thousandths) need. Kernels get the amounts and no real device."""

    kind = "mock"

    def __init__(self, amounts: Mapping[str, int]) -> None:
        self._amounts = dict(amounts)

    def discover(self) -> Found:
        devices = [
            Device(f"MOCK-{slot}-{number}", slot, _MODEL, number=number, mock=True)
            for slot, amount in self._amounts.items()
            for number in range(-(-amount // MILLI))
        ]
        return Found(tuple(devices), (_note(list(self._amounts)),) if devices else (), is_present=bool(devices))


class PoolGpus(Accelerator):
    """GPUs of a Kubernetes cluster: as many as ``count`` returns. The cluster chooses those of a kernel, so that a
    granted device stands for any."""

    kind = "cuda"

    def __init__(self, count: Callable[[], int]) -> None:
        self._count = count
        self._seen = 0

    def discover(self) -> Found:
        with contextlib.suppress(BackendError):  # keep the number while the cluster does not answer
            self._seen = self._count()
        devices = [Device(f"pool-gpu-{number}", "cuda.device", "GPU", number=number) for number in range(self._seen)]
        return Found(tuple(devices), is_present=bool(devices))


def _note(slots: Sequence[str]) -> Note:
    return Note(
        code="mock-accelerators",
        message=f"{', '.join(slots)} of this agent exist on paper only: sessions are given them and find none.",
        fix="Take them out of BACKENDAI_AGENT_SLOTS, which then offers what the machine has.",
    )


logger = logging.getLogger(__name__)

RUNTIME_MISSING = "accelerator-runtime-missing"  # the engine could not provide a kernel's devices
_INTERVAL = 5.0
_FIRST_LOOK_SECONDS = 10.0
_LONGEST_SILENCE = 60.0
_WITHHELD_SECONDS = 600.0  # pause after a start that failed for lack of a runtime
_GONE = "it has gone from the machine"


@dataclass(frozen=True, slots=True)
class _Reading:
    """The result of one reading. ``kinds``: the accelerator of each device. ``owners``: the kernel of each process."""

    at: float
    devices: Mapping[str, Device] = field(default_factory=dict)
    kinds: Mapping[str, Accelerator] = field(default_factory=dict)
    uses: Mapping[str, MeasuredUse] = field(default_factory=dict)
    owners: Mapping[int, UUID] = field(default_factory=dict)
    notes: tuple[Note, ...] = ()


class Accelerators:
    """The agent's accelerators. ``look`` reads the hardware, and ``start`` repeats that in a thread; all other methods
    use the last reading.

    ``asked``: amounts that the settings demand; mock devices replace those that the machine lacks.
    """

    def __init__(
        self,
        kinds: Sequence[Accelerator] = (),
        *,
        asked: Mapping[str, int] | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._kinds, self._asked, self._clock = list(kinds), Slots(asked or {}), clock
        self._reading = _Reading(clock())
        self._known: dict[str, tuple[str, Device]] = {}  # id → kind, last known device
        self._withheld: dict[str, tuple[float, str]] = {}  # kind → end, reason
        self._containers: dict[str, UUID] = {}
        self._tally = DeviceReadings()
        self._seen, self._stopped = threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self._run, name="accelerators", daemon=True)

    def add(self, kind: Accelerator) -> None:
        """Add an accelerator, which the next reading includes."""
        self._kinds.append(kind)

    def start(self) -> None:
        """Read the hardware every 5 s from now on. Returns after the first reading, at most 10 s."""
        self._thread.start()
        if not self._seen.wait(_FIRST_LOOK_SECONDS):
            logger.warning("the drivers of accelerators do not answer; none is offered until they do")

    def stop(self) -> None:
        """Stop reading. Does not wait for a hanging driver."""
        self._stopped.set()
        if self._thread.is_alive():
            self._thread.join(1.0)
        if not self._thread.is_alive():
            for one in self._kinds:
                one.close()

    def look(self) -> None:
        """Read all hardware once."""
        found = {one: self._discover(one) for one in self._kinds}
        absent = {slot: amount for slot, amount in self._asked.items() if not _is_real(slot, found, self._known)}
        mock = Mock(absent)
        found[mock] = mock.discover()
        devices, kinds, uses = dict[str, Device](), dict[str, Accelerator](), dict[str, MeasuredUse]()
        for one, seen in found.items():
            of_kind = [*seen.devices, *self._gone(one, seen)]
            devices |= {device.id: device for device in of_kind}
            kinds |= {device.id: one for device in of_kind}
            uses |= self._samples(one, [device for device in seen.devices if not device.fault])
        self._known |= {
            device.id: (kinds[device.id].kind, device)
            for device in devices.values()
            if not (device.fault or device.mock or ".mig-" in device.slot)  # MIG instances come and go
        }
        pids = {pid for use in uses.values() for pid in use.processes}
        owners = kernels_of(pids, dict(self._containers))
        notes = tuple(note for seen in found.values() for note in seen.notes)
        self._reading = _Reading(self._clock(), devices, kinds, uses, owners, notes)
        self._tally.add(uses, owners)
        self._seen.set()

    def drain(self) -> dict[str, DeviceUsage]:
        """Return the mean use of each device since the last call."""
        return self._tally.drain()

    def offer(self, kernels: Iterable[KernelSighting]) -> Offer:
        """Return the agent's offer of accelerators, and its notes. ``kernels``: the kernels on this agent."""
        self._containers = {one.container_id: one.kernel_id for one in kernels if one.container_id}
        reading = self._reading
        return offer_of(self._judged(reading), reading.uses, reading.owners, reading.notes, self._asked)

    def grant(self, spec: KernelSpec, *, native: bool = False) -> Grant:
        """Return the grant of the devices in the kernel's spec; it hides all others.

        Raises StartFailed (``device-lost``) for an unusable device, and BackendError before the first reading.
        """
        parts = self._parts(spec) if any(spec.devices.values()) else []
        if not parts:
            return NOTHING
        of_kind: dict[Accelerator, list[Part]] = {}
        for part in parts:
            of_kind.setdefault(self._reading.kinds[part.device.id], []).append(part)
        environ, host, paths = dict(described(parts)), dict[str, Any](), list[str]()
        for one, own in of_kind.items():
            grant = one.native(own) if native else one.container(own)
            environ |= grant.environ
            paths += grant.paths
            for name, value in grant.host.items():
                host[name] = [*host.get(name, []), *value] if isinstance(value, list) else value
        return Grant(environ, host, tuple(paths))

    def has(self, kind: str) -> bool:
        """Return whether the machine has devices of this kind, including faulty ones."""
        return any(one.kind == kind for one in self._reading.kinds.values())

    def withhold(self, kind: str, why: str) -> None:
        """Offer no devices of this kind for ten minutes. Call it when the engine failed to provide them."""
        self._withheld[kind] = self._clock() + _WITHHELD_SECONDS, why

    def _run(self) -> None:
        while not self._stopped.is_set():
            try:
                self.look()
            except Exception:
                logger.exception("accelerators could not be looked at")
            self._stopped.wait(_INTERVAL)

    def _discover(self, one: Accelerator) -> Found:
        try:
            return one.discover()
        except Exception as error:
            logger.exception("%s could not be looked at", one.kind)
            note = Note(
                code="accelerator-error",
                message=f"The {one.kind} devices of this machine cannot be read: {type(error).__name__}: {error}.",
                fix="See the agent's log; an update of the driver may repair it.",
            )
            return Found(notes=(note,), is_present=True)

    def _samples(self, one: Accelerator, devices: Sequence[Device]) -> dict[str, MeasuredUse]:
        try:
            return one.samples(devices)
        except Exception:
            logger.exception("%s does not say how busy it is", one.kind)
            return {}

    def _gone(self, one: Accelerator, seen: Found) -> list[Device]:
        """Return the known devices that are missing now, except GPUs that were split into MIG instances."""
        there = {device.id for device in seen.devices}
        cut = {device.number for device in seen.devices if ".mig-" in device.slot}
        return [
            replace(device, fault=_GONE)
            for kind, device in self._known.values()
            if kind == one.kind and device.id not in there and device.number not in cut
        ]

    def _judged(self, reading: _Reading) -> list[Device]:
        """Return the devices with further faults: a driver that does not answer, and withheld kinds."""
        now = self._clock()
        silent = now - reading.at > _LONGEST_SILENCE and self._thread.is_alive()
        judged = []
        for device in reading.devices.values():
            until, why = self._withheld.get(reading.kinds[device.id].kind, (now, ""))
            fault = device.fault or ("its driver has not answered for a minute" if silent else "")
            judged.append(replace(device, fault=fault or (why if until > now else "")))
        return judged

    def _parts(self, spec: KernelSpec) -> list[Part]:
        if not self._seen.wait(_FIRST_LOOK_SECONDS):
            raise BackendError("The accelerator drivers of this agent have not answered yet.")
        reading, parts = self._reading, []
        for slot, amounts in spec.devices.items():
            for device_id, amount in amounts.items():
                device = reading.devices.get(device_id)
                if device is None or device.slot != slot or device.fault:
                    why = device.fault if device and device.fault else "this agent does not offer it so"
                    raise StartFailed(
                        "{slot} {device_id} cannot be given: {why}.",
                        slot=slot,
                        device_id=device_id,
                        why=why,
                        code="device-lost",
                    )
                parts.append(Part(device, parse_amount(slot, amount, field=f"devices.{slot}")))
        return sorted(parts, key=lambda part: (part.device.slot, part.device.number, part.device.id))


def _is_real(slot: str, found: Mapping[Accelerator, Found], known: Mapping[str, tuple[str, Device]]) -> bool:
    """Return whether the machine has, or had, hardware of the slot's kind; then it gets no mock devices."""
    kind = slot.partition(".")[0]
    return any(one.kind == kind and seen.is_present for one, seen in found.items()) or any(
        its_kind == kind for its_kind, _ in known.values()
    )
