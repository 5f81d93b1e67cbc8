"""From the NVIDIA GPUs that a kernel was given to its container or process."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from backendai.agent.accelerators.base import Grant, Part
from backendai.core.slots import MILLI
from backendai.wire.messages import Note

_SHARES = "cuda.shares"
_CAPABILITIES = ("compute", "utility", "video")
_PIPE_INSIDE = "/run/nvidia-mps"  # not below /tmp, which is the kernel's own
_MIB = 2**20
_CONTROL_FILES = ("/dev/nvidiactl", "/dev/nvidia-uvm", "/dev/nvidia-uvm-tools", "/dev/nvidia-caps")


@dataclass(frozen=True, slots=True)
class Mps:
    """NVIDIA's multi-process service, which enforces shares of a GPU.

    ``pipe``: the directory of its pipes on this machine; None: it is not used. ``is_native``: kernels are native
    processes, which do not use it. It serves one user at a time and each native kernel has a user of its own: a second
    kernel would hang in its first call of CUDA until the first one ends (seen on an H100)."""

    pipe: Path | None
    is_native: bool = False

    @property
    def is_up(self) -> bool:
        """Whether kernels use the service: its control daemon has made its pipe."""
        return self.pipe is not None and not self.is_native and (self.pipe / "control").exists()

    def notes(self) -> Iterator[Note]:
        """Yield what an administrator should know while shares are offered."""
        if self.is_native:
            yield Note(
                code="mps-native",
                message="GPU shares are not enforced: native sessions have different users, and MPS serves one user.",
                fix="Run sessions in containers to enforce shares, or offer whole GPUs.",
            )
        elif not self.is_up:
            where = f"no pipe of it in {self.pipe}" if self.pipe else "it is switched off here"
            yield Note(
                code="mps-missing",
                message=f"GPU shares are not enforced: MPS is not running ({where}).",
                fix="Start nvidia-cuda-mps-control -d on this machine as user 1000, and name the folder of its pipes "
                "in BACKENDAI_AGENT_MPS_PIPE; or offer whole GPUs.",
            )


def grant_to_container(parts: Sequence[Part], mps: Mps) -> Grant:
    """Return the request for exactly these devices by id. Inside, they are numbered from 0 in the order of the bus."""
    parts = _ordered(parts)
    ids = [part.device.id for part in parts]
    request = {"Driver": "nvidia", "DeviceIDs": ids, "Capabilities": [["gpu", *_CAPABILITIES]]}
    host: dict[str, Any] = {"DeviceRequests": [request]}
    environ = {
        "NVIDIA_VISIBLE_DEVICES": ",".join(ids),
        "NVIDIA_DRIVER_CAPABILITIES": ",".join(_CAPABILITIES),
        "CUDA_DEVICE_ORDER": "PCI_BUS_ID",
        "CUDA_VISIBLE_DEVICES": ",".join(str(number) for number in range(len(ids))),
    }
    if _are_shared(parts):
        environ |= _limits(parts)
        if mps.is_up:
            environ["CUDA_MPS_PIPE_DIRECTORY"] = _PIPE_INSIDE
            host["Mounts"] = [{"Type": "bind", "Source": str(mps.pipe), "Target": _PIPE_INSIDE}]
            host["IpcMode"] = "host"  # clients and server meet in shared memory
    return Grant(environ, host)


def grant_to_process(parts: Sequence[Part]) -> Grant:
    """Return the variables that keep a willing program to these devices, and the device files of no others."""
    parts = _ordered(parts)
    ids = ",".join(part.device.id for part in parts)
    environ = {"NVIDIA_VISIBLE_DEVICES": ids, "CUDA_DEVICE_ORDER": "PCI_BUS_ID", "CUDA_VISIBLE_DEVICES": ids}
    paths = tuple(path for part in parts for path in part.device.paths)
    if _are_shared(parts):
        environ |= _limits(parts)
    return Grant(environ, paths=(*paths, *_CONTROL_FILES))


def _ordered(parts: Sequence[Part]) -> list[Part]:
    return sorted(parts, key=lambda part: (part.device.number, part.device.id))


def _are_shared(parts: Sequence[Part]) -> bool:
    return any(part.device.slot == _SHARES for part in parts)


def _limits(parts: Sequence[Part]) -> dict[str, str]:
    """Return what MPS holds a client to. It knows one part of the processors for all GPUs: the smallest."""
    smallest = min(part.amount for part in parts)
    memory = [
        f"{number}={part.memory // _MIB}M"
        for number, part in enumerate(parts)
        if part.memory is not None and part.amount < MILLI
    ]
    limits = {"CUDA_MPS_ACTIVE_THREAD_PERCENTAGE": str(max(1, smallest * 100 // MILLI))}
    return limits | ({"CUDA_MPS_PINNED_DEVICE_MEM_LIMIT": ",".join(memory)} if memory else {})
