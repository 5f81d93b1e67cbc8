"""Checks of the machine's GPUs: driver, health, and use in containers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from backendai.agent.accelerators.base import Accelerator, Device
from backendai.agent.accelerators.cuda import Cuda
from backendai.agent.accelerators.rocm import Rocm
from backendai.agent.backends.docker.notes import gives_gpus
from backendai.ops.doctor.check import Check, ok, problem, warning
from backendai.ops.doctor.engine import Ask
from backendai.ops.run.engine import NoEngine, ask_engine

_NAME = "GPUs"
_TOOLKIT = "Install nvidia-container-toolkit, run nvidia-ctk runtime configure --runtime=docker, restart Docker."


def accelerators(kinds: Sequence[Accelerator] | None = None, ask: Ask = ask_engine) -> list[Check]:
    """Return the findings about the GPUs of this machine."""
    checks, devices = list[Check](), list[Device]()
    for one in (Cuda(), Rocm()) if kinds is None else kinds:
        found = one.discover()
        one.close()
        devices += found.devices
        checks += [problem(_NAME, note.message, note.fix) for note in found.notes]
    checks += [
        problem(_NAME, f"{device.model or device.slot} {device.id}: {device.fault}", "Look at the machine (dmesg).")
        for device in devices
        if device.fault
    ]
    well = Counter(device.model or device.slot for device in devices if not device.fault)
    if well:
        checks.append(ok(_NAME, ", ".join(f"{count} × {model}" for model, count in well.items())))
        checks += _containers(devices, ask)
    return checks or [ok(_NAME, "there are none")]


def _containers(devices: Sequence[Device], ask: Ask) -> list[Check]:
    if not any(device.slot.startswith("cuda.") for device in devices):
        return []
    try:
        info = ask("/info")
    except NoEngine:
        return []  # said elsewhere
    if gives_gpus(info):
        return [ok("GPUs in containers", "Docker has NVIDIA's runtime")]
    return [warning("GPUs in containers", "Docker has no NVIDIA runtime: containers get no GPU", _TOOLKIT)]
