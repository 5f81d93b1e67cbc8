"""Notes for administrators about a container engine."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from backendai.agent.accelerators.inventory import RUNTIME_MISSING, Accelerators
from backendai.agent.backends.docker.seccomp import has_old_profile, own_profile
from backendai.agent.settings.kernel_runtime import Runtime
from backendai.base.core.slots import format_size
from backendai.base.wire.messages import Note

_LIMITS = {
    "MemoryLimit": ("memory-unlimited", "memory"),
    "CpuCfsQuota": ("cpu-unlimited", "CPU time"),
    "PidsLimit": ("processes-unlimited", "the number of processes"),
}
_INOTIFY = Path("/proc/sys/fs/inotify/max_user_instances")
_ENOUGH_INOTIFY = 1024


def notes_of(
    info: dict[str, Any], accelerators: Accelerators, runtime: Runtime, *, is_local: bool, scratch_is_limited: bool
) -> Iterator[Note]:
    """Yield all notes about an engine with this description. ``is_local``: it runs on this machine."""
    yield from engine_notes(info)
    yield from agent_notes(scratch_is_limited=scratch_is_limited)
    yield from gpu_notes(info, accelerators)
    if is_local:
        yield from inotify_notes()
    yield from runtime_notes(info, runtime)


def engine_notes(info: dict[str, Any]) -> Iterator[Note]:
    """Yield notes about engine settings that weaken kernels or end them early."""
    if not info.get("LiveRestoreEnabled"):
        yield Note(
            code="live-restore-off",
            message="A restart of the container engine ends every kernel of this agent.",
            fix='Set "live-restore": true in /etc/docker/daemon.json and reload the engine.',
        )
    for field, (code, what) in _LIMITS.items():
        if info.get(field) is False:
            yield Note(
                code=code,
                message=f"The engine cannot limit {what} of a kernel (cgroup driver {info.get('CgroupDriver')}).",
                fix="Enable this cgroup controller on the machine and restart the engine.",
            )
    if not any("seccomp" in option for option in info.get("SecurityOptions") or []):
        yield Note(
            code="seccomp-off",
            message="Kernels may use every system call: the engine has no seccomp.",
            fix="Use an engine and a Linux kernel with seccomp.",
        )
    elif has_old_profile(info) and not own_profile(info):
        yield Note(
            code="seccomp-old",
            message="Kernels may use VSOCK sockets, which reach services of the machine and of its hypervisor, and "
            f"io_uring: the default seccomp profile of Docker {info['ServerVersion']} allows them.",
            fix="Use Docker Engine 25 or newer, or your own seccomp-profile in daemon.json.",
        )
    if info.get("BridgeNfIptables") is False:
        yield Note(
            code="bridge-traffic-unfiltered",
            message="Kernels on the shared network can reach each other: bridged packets pass no packet rules.",
            fix="Load the module br_netfilter and set sysctl net.bridge.bridge-nf-call-iptables=1.",
        )


def runtime_notes(info: Mapping[str, Any], runtime: Runtime) -> Iterator[Note]:
    """Yield a note about a runtime that the engine lacks, or about features that the runtime lacks."""
    if fault := missing_runtime(info, runtime):
        yield Note(
            code="runtime-missing",
            message=fault,
            fix=f'Add "{runtime.name}" to "runtimes" in /etc/docker/daemon.json, or change BACKENDAI_AGENT_RUNTIME.',
        )
    if runtime.has_border:
        taken = f" It takes {format_size(runtime.overhead)} of each kernel's memory." if runtime.overhead else ""
        yield Note(
            code="runtime-border",
            message=f"Kernels run under {runtime.name}, with a Linux kernel of their own: they get no accelerators, no "
            f"console and no SSH, and cannot be saved as images.{taken}",
        )


def missing_runtime(info: Mapping[str, Any], runtime: Runtime) -> str:
    """Return that no kernel can start as the engine lacks the runtime; empty if it has it or nothing is known."""
    if not info or runtime.is_known_to(info):
        return ""
    return f"No kernel can start: the engine has no runtime {runtime.name}."


def inotify_notes(setting: Path = _INOTIFY) -> Iterator[Note]:
    """Yield a note if the machine has few inotify instances, which all sessions share as one user."""
    count = int(setting.read_text()) if setting.exists() else _ENOUGH_INOTIFY
    if count < _ENOUGH_INOTIFY:
        yield Note(
            code="inotify-low",
            message=f"All kernels of this agent share {count} inotify instances: one session can take them all, and "
            "editors and JupyterLab of the others then fail.",
            fix=f"sysctl -w fs.inotify.max_user_instances={8 * _ENOUGH_INOTIFY}, also in a file in /etc/sysctl.d/. "
            "The agent does not change it.",
        )


def gpu_notes(info: dict[str, Any], accelerators: Accelerators) -> Iterator[Note]:
    """Yield a note if the machine has NVIDIA GPUs that its engine seems unable to give to containers."""
    if accelerators.has("cuda") and not gives_gpus(info):
        yield Note(
            code=RUNTIME_MISSING,
            message="Sessions with GPUs will probably not start: the container engine knows no runtime of NVIDIA's.",
            fix="Install nvidia-container-toolkit, run nvidia-ctk runtime configure --runtime=docker, restart Docker.",
        )


def gives_gpus(info: Mapping[str, Any]) -> bool:
    """Return whether an engine with this description seems able to give NVIDIA GPUs to containers: it knows NVIDIA's
    runtime or device driver."""
    discovered = " ".join(str(device.get("ID", "")) for device in info.get("DiscoveredDevices") or [])
    return (
        "nvidia" in (info.get("Runtimes") or {})
        or "nvidia.com/gpu" in discovered
        or shutil.which("nvidia-container-runtime-hook") is not None
    )


def agent_notes(*, scratch_is_limited: bool) -> Iterator[Note]:
    """Yield notes about limits that the agent's rights do not allow to enforce."""
    if os.geteuid() != 0:
        yield Note(
            code="not-root",
            message="The agent is not root: it can neither limit nor always empty scratch folders.",
            fix="Run the agent as root.",
        )
    if not scratch_is_limited:
        yield Note(
            code="scratch-unlimited",
            message="Scratch folders have no hard limit: a kernel can fill the disk until the agent notices.",
            fix="Run the agent as root on the engine's machine with loop devices and mkfs.ext4 (package e2fsprogs).",
        )
