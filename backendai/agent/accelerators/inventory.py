"""All accelerators of a node: looked at by a thread of their own, so that a driver that hangs holds up nothing else."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any
from uuid import UUID

from backendai.agent.accelerators.base import Accelerator, Device, Found, Grant, Part, Use
from backendai.agent.accelerators.environ import NOTHING, described
from backendai.agent.accelerators.mock import Mock
from backendai.agent.accelerators.offer import Offer, offer_of
from backendai.agent.accelerators.processes import kernels_of
from backendai.agent.accelerators.tally import Tally
from backendai.agent.backends.base import BackendError, StartFailed
from backendai.core.slots import Slots, parse_amount
from backendai.wire.messages import KernelSighting, KernelSpec, Note
from backendai.wire.usage import DeviceUsage

logger = logging.getLogger(__name__)

RUNTIME_MISSING = "accelerator-runtime-missing"  # the reason of a start that the engine cannot give its devices
_INTERVAL = 5.0
_FIRST_LOOK_SECONDS = 10.0
_LONGEST_SILENCE = 60.0
_WITHHELD_SECONDS = 600.0  # after a start that failed for its runtime, until the next may try
_GONE = "it has gone from the machine"


@dataclass(frozen=True, slots=True)
class _Picture:
    """What one look saw. ``kinds``: by device, which accelerator hands it out."""

    at: float
    devices: Mapping[str, Device] = field(default_factory=dict)
    kinds: Mapping[str, Accelerator] = field(default_factory=dict)
    uses: Mapping[str, Use] = field(default_factory=dict)
    owners: Mapping[int, UUID] = field(default_factory=dict)
    notes: tuple[Note, ...] = ()


class Accelerators:
    """``asked``: amounts of accelerators that the node was told to offer; those that the machine has not are mocks.

    ``look`` asks the hardware and ``start`` has a thread do so for ever; everything else only reads what was seen last.
    """

    def __init__(
        self,
        kinds: Sequence[Accelerator] = (),
        *,
        asked: Mapping[str, int] | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._kinds, self._asked, self._clock = list(kinds), Slots(asked or {}), clock
        self._picture = _Picture(clock())
        self._known: dict[str, tuple[str, Device]] = {}  # id → kind, and what it was when it was last seen
        self._withheld: dict[str, tuple[float, str]] = {}  # kind → until when, why
        self._containers: dict[str, UUID] = {}
        self._tally = Tally()
        self._seen, self._stopped = threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self._run, name="accelerators", daemon=True)

    def add(self, kind: Accelerator) -> None:
        """Look at the devices of one more kind, from the next look on."""
        self._kinds.append(kind)

    def start(self) -> None:
        """Look from now on, every few seconds. Returns after the first look, or without it if that takes long."""
        self._thread.start()
        if not self._seen.wait(_FIRST_LOOK_SECONDS):
            logger.warning("the drivers of accelerators do not answer; none is offered until they do")

    def stop(self) -> None:
        """Look no more. A driver that hangs is left behind."""
        self._stopped.set()
        if self._thread.is_alive():
            self._thread.join(1.0)
        if not self._thread.is_alive():
            for one in self._kinds:
                one.close()

    def look(self) -> None:
        """Ask all hardware once."""
        found = {one: self._discover(one) for one in self._kinds}
        absent = {slot: amount for slot, amount in self._asked.items() if not _is_real(slot, found, self._known)}
        mock = Mock(absent)
        found[mock] = mock.discover()
        devices, kinds, uses = dict[str, Device](), dict[str, Accelerator](), dict[str, Use]()
        for one, seen in found.items():
            of_kind = [*seen.devices, *self._gone(one, seen)]
            devices |= {device.id: device for device in of_kind}
            kinds |= {device.id: one for device in of_kind}
            uses |= self._samples(one, [device for device in seen.devices if not device.fault])
        self._known |= {
            device.id: (kinds[device.id].kind, device)
            for device in devices.values()
            if not (device.fault or device.mock or ".mig-" in device.slot)  # pieces come and go as they are cut
        }
        pids = {pid for use in uses.values() for pid in use.processes}
        owners = kernels_of(pids, dict(self._containers))
        notes = tuple(note for seen in found.values() for note in seen.notes)
        self._picture = _Picture(self._clock(), devices, kinds, uses, owners, notes)
        self._tally.add(uses, owners)
        self._seen.set()

    def drain(self) -> dict[str, DeviceUsage]:
        """Return how busy the devices were since the last call, the mean of all looks."""
        return self._tally.drain()

    def offer(self, kernels: Iterable[KernelSighting]) -> Offer:
        """Return what the node offers of accelerators and says of them; ``kernels`` are those that are here."""
        self._containers = {one.container_id: one.kernel_id for one in kernels if one.container_id}
        picture = self._picture
        return offer_of(self._judged(picture), picture.uses, picture.owners, picture.notes, self._asked)

    def grant(self, spec: KernelSpec, *, native: bool = False) -> Grant:
        """Return what this kernel gets for the devices it was given, and what closes all others to it.

        Raises StartFailed (``device-lost``) when one of them cannot be used any more, BackendError while nothing is
        known of any.
        """
        parts = self._parts(spec) if any(spec.devices.values()) else []
        if not parts:
            return NOTHING
        of_kind: dict[Accelerator, list[Part]] = {}
        for part in parts:
            of_kind.setdefault(self._picture.kinds[part.device.id], []).append(part)
        environ, host, paths = dict(described(parts)), dict[str, Any](), list[str]()
        for one, own in of_kind.items():
            grant = one.native(own) if native else one.container(own)
            environ |= grant.environ
            paths += grant.paths
            for name, value in grant.host.items():
                host[name] = [*host.get(name, []), *value] if isinstance(value, list) else value
        return Grant(environ, host, tuple(paths))

    def has(self, kind: str) -> bool:
        """Return whether the node has devices of this kind, well or not."""
        return any(one.kind == kind for one in self._picture.kinds.values())

    def withhold(self, kind: str, why: str) -> None:
        """Offer nothing of this kind for ten minutes: a start has just shown that nobody can be given any."""
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

    def _samples(self, one: Accelerator, devices: Sequence[Device]) -> dict[str, Use]:
        try:
            return one.samples(devices)
        except Exception:
            logger.exception("%s does not say how busy it is", one.kind)
            return {}

    def _gone(self, one: Accelerator, seen: Found) -> list[Device]:
        """Return what was there once; a GPU that was cut into pieces meanwhile is not gone."""
        there = {device.id for device in seen.devices}
        cut = {device.number for device in seen.devices if ".mig-" in device.slot}
        return [
            replace(device, fault=_GONE)
            for kind, device in self._known.values()
            if kind == one.kind and device.id not in there and device.number not in cut
        ]

    def _judged(self, picture: _Picture) -> list[Device]:
        """Return the devices with the faults that no driver tells."""
        now = self._clock()
        silent = now - picture.at > _LONGEST_SILENCE and self._thread.is_alive()
        judged = []
        for device in picture.devices.values():
            until, why = self._withheld.get(picture.kinds[device.id].kind, (now, ""))
            fault = device.fault or ("its driver has not answered for a minute" if silent else "")
            judged.append(replace(device, fault=fault or (why if until > now else "")))
        return judged

    def _parts(self, spec: KernelSpec) -> list[Part]:
        if not self._seen.wait(_FIRST_LOOK_SECONDS):
            raise BackendError("The accelerator drivers of this agent have not answered yet.")
        picture, parts = self._picture, []
        for slot, amounts in spec.devices.items():
            for device_id, amount in amounts.items():
                device = picture.devices.get(device_id)
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
    """Return whether the machine has hardware of the slot's kind: then nothing is made up, even if it fails."""
    kind = slot.partition(".")[0]
    return any(one.kind == kind and seen.is_present for one, seen in found.items()) or any(
        its_kind == kind for its_kind, _ in known.values()
    )
