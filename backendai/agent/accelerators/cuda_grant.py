"""Grants NVIDIA GPUs to containers and native processes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from backendai.agent.accelerators.base import Grant, Part
from backendai.base.core.slots import MILLI
from backendai.base.wire.messages import Note

_SHARES = "cuda.shares"
_CAPABILITIES = ("compute", "utility", "video")
_PIPE_INSIDE = "/run/nvidia-mps"  # not below /tmp, where each kernel has its own files
_NO_PIPE = "/nonexistent"
_MIB = 2**20
_CONTROL_FILES = ("/dev/nvidiactl", "/dev/nvidia-uvm", "/dev/nvidia-uvm-tools", "/dev/nvidia-caps")


@dataclass(frozen=True, slots=True)
class Mps:
    """NVIDIA's multi-process service (MPS), which enforces shares of a GPU.

    ``pipe``: the directory of its pipes on this machine; None: MPS is not used. ``is_native``: kernels are native
    processes and do not use MPS. It serves one user at a time, and each native kernel has a user of its own: a second
    kernel would block in its first CUDA call until the first kernel ends (seen on an H100).
    """

    pipe: Path | None
    is_native: bool = False

    @property
    def is_up(self) -> bool:
        """Whether kernels use MPS: its control daemon has created its pipe."""
        return self.pipe is not None and not self.is_native and (self.pipe / "control").exists()

    def notes(self) -> Iterator[Note]:
        """Yield the notes for administrators of an agent that offers shares."""
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
    """Return the grant of exactly these devices, by UUID. In the container they are numbered from 0 in PCI order."""
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
            host["IpcMode"] = "host"  # MPS clients and server use shared memory
    return Grant(environ, host)


def grant_to_process(parts: Sequence[Part]) -> Grant:
    """Return the grant for a native process: variables that select these devices, and only their device files.

    Without a named pipe CUDA looks for MPS in /tmp/nvidia-mps, which an unconfined process shares with the machine.
    """
    parts = _ordered(parts)
    ids = ",".join(part.device.id for part in parts)
    environ = {"NVIDIA_VISIBLE_DEVICES": ids, "CUDA_DEVICE_ORDER": "PCI_BUS_ID", "CUDA_VISIBLE_DEVICES": ids}
    environ["CUDA_MPS_PIPE_DIRECTORY"] = _NO_PIPE
    paths = tuple(path for part in parts for path in part.device.paths)
    if _are_shared(parts):
        environ |= _limits(parts)
    return Grant(environ, paths=(*paths, *_CONTROL_FILES))


def _ordered(parts: Sequence[Part]) -> list[Part]:
    return sorted(parts, key=lambda part: (part.device.number, part.device.id))


def _are_shared(parts: Sequence[Part]) -> bool:
    return any(part.device.slot == _SHARES for part in parts)


def _limits(parts: Sequence[Part]) -> dict[str, str]:
    """Return the limits of an MPS client. MPS has one limit of threads for all GPUs: the smallest part."""
    smallest = min(part.amount for part in parts)
    memory = [
        f"{number}={part.memory // _MIB}M"
        for number, part in enumerate(parts)
        if part.memory is not None and part.amount < MILLI
    ]
    limits = {"CUDA_MPS_ACTIVE_THREAD_PERCENTAGE": str(max(1, smallest * 100 // MILLI))}
    return limits | ({"CUDA_MPS_PINNED_DEVICE_MEM_LIMIT": ",".join(memory)} if memory else {})
