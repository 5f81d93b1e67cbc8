"""Runs the simulated agents of the demonstration in one process: twelve of their own would need 500 MB."""

from __future__ import annotations

import logging
import os
import threading
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from backendai.agent.accelerators.base import Accelerator, Device, Found, MeasuredUse
from backendai.agent.accelerators.inventory import Accelerators
from backendai.agent.backends.simulated.backend import SimulatedBackend, SimulatedDurations
from backendai.agent.backends.simulated.usage import reading_of
from backendai.agent.gateway.thread import listen, public_url
from backendai.agent.loop.runtime import AgentRuntime
from backendai.agent.portal.bundling import BundlingClient
from backendai.agent.portal.joining import ensure_joined
from backendai.agent.settings.config import NodeSettings, read_settings
from backendai.agent.settings.credentials import Credentials, load_credentials, lock_data
from backendai.base.core.slots import MILLI, Slots
from backendai.base.wire.live import LiveSample
from backendai.base.wire.messages import Note
from backendai.ops.demo.lab import IMAGES, MACHINES, Machine

logger = logging.getLogger(__name__)

_START_SECONDS, _GIB = 4.0, 2**30


class DemoBackend(SimulatedBackend):
    """A simulated backend with a load of its own, and without the note that it is one: the banner says so."""

    is_here = False

    def sample(self) -> LiveSample:
        """Return the load that the running kernels would make."""
        busy = used = 0.0
        for kernel in self._kernels.copy().values():
            if kernel.running(now := self._clock()):
                slots = Slots.parse(kernel.slots)
                busy += slots["cpu"] / MILLI * (0.5 if kernel.load is None else kernel.load)
                used += reading_of(kernel, now).mem_bytes or 0
        cores, memory = self._capacity["cpu"] / MILLI, self._capacity["mem"] // MILLI
        return LiveSample(cpu_pct=100 * busy / cores, load=round(busy, 2), mem_used=int(used), mem_total=memory)

    def notes(self) -> list[Note]:
        return []


@dataclass(frozen=True, slots=True)
class DemoDevices(Accelerator):
    """The invented devices of a machine, as busy as its kernels make them."""

    machine: Machine
    backend: DemoBackend

    @property
    def kind(self) -> str:  # type: ignore[override]
        """The first part of the slot's name."""
        return self.machine.slot.partition(".")[0]

    def discover(self) -> Found:
        one = self.machine
        fault = "ECC errors that cannot be corrected: its driver asks for a reset"
        devices = [
            Device(
                id=f"{one.name}-{number}",
                slot=one.slot,
                model=one.model,
                memory=one.memory_gib * _GIB,
                number=number,
                numa=number * 2 // one.devices,
                fault=fault if number == one.faulty else "",
            )
            for number in range(one.devices)
        ]
        return Found(tuple(devices), is_present=True)

    def samples(self, devices: Sequence[Device]) -> dict[str, MeasuredUse]:
        """Return the use of all devices; that of nobody's is 0."""
        busy: dict[str, float] = defaultdict(float)
        for reading in self.backend.readings(self.backend.kernels()).values():
            for device_id, use in reading.devices.items():
                busy[device_id] += use.util_pct or 0.0
        full = self.machine.memory_gib * _GIB * 3 // 4
        return {
            one.id: MeasuredUse(util_pct=min(busy[one.id], 100.0), mem_used=full if busy[one.id] else 0)
            for one in devices
        }


def run(portal_url: str, data: Path, token_for: Callable[[str], str], ended: threading.Event) -> None:
    """Run all machines until ``ended`` is set. ``token_for`` returns a join token for a resource group."""
    runtimes = [_assemble(machine, portal_url, data, token_for) for machine in MACHINES]
    for runtime in runtimes:
        runtime.start()
    ended.wait()
    stops = [threading.Thread(target=runtime.stop, args=(2.0,)) for runtime in runtimes]
    for stop in stops:
        stop.start()
    for stop in stops:
        stop.join()


def _assemble(machine: Machine, portal_url: str, data: Path, token_for: Callable[[str], str]) -> AgentRuntime:
    settings = _settings(machine, portal_url, data, token_for)
    lock_data(settings.data)  # until the end of the process
    listener = listen(settings, portal_url)
    gateway_url = public_url(settings, listener, portal_url)
    credentials = ensure_joined(settings, portal_url=portal_url, gateway_url=gateway_url)
    backend = _backend(settings, credentials)
    return AgentRuntime(
        settings,
        credentials,
        backend=backend,
        portal=BundlingClient(portal_url, credentials.token, name=credentials.name),
        accelerators=Accelerators([DemoDevices(machine, backend)] if machine.devices else []),
        listener=listener,
        gateway_url=gateway_url,
    )


def _settings(machine: Machine, portal_url: str, data: Path, token_for: Callable[[str], str]) -> NodeSettings:
    own = data / "agents" / machine.name
    told: Mapping[str, str] = {**os.environ, "BACKENDAI_AGENT_SLOTS": machine.slots, "REDIS_URL": ""}
    options = {"name": machine.name, "data": own, "join": portal_url, "backend": "simulated"}
    if load_credentials(own) is None:
        options["token"] = token_for(machine.group)
    return read_settings(told, options)


def _backend(settings: NodeSettings, credentials: Credentials) -> DemoBackend:
    return DemoBackend(
        deployment=credentials.deployment,
        capacity=settings.slots or Slots(),
        pace=SimulatedDurations(start_seconds=_START_SECONDS),
        images=[f"demo/{name}:latest" for name, *_ in IMAGES],
        journal=settings.data / "simulated.json",
        hosts=["local"],  # of `bin/up`, whose file server has the folders
    )
