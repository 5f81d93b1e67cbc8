"""What an administrator should know about a container engine."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

from backendai.wire.messages import Note

_LIMITS = {
    "MemoryLimit": ("memory-unlimited", "memory"),
    "CpuCfsQuota": ("cpu-unlimited", "CPU time"),
    "PidsLimit": ("processes-unlimited", "the number of processes"),
}


def engine_notes(info: dict[str, Any]) -> Iterator[Note]:
    """Yield a note for everything in the engine's own description that makes kernels weaker or shorter-lived."""
    if not info.get("LiveRestoreEnabled"):
        yield Note(
            code="live-restore-off",
            message="A restart of the container engine ends every kernel of this node.",
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
    if info.get("BridgeNfIptables") is False:
        yield Note(
            code="bridge-traffic-unfiltered",
            message="Kernels on the shared network can reach each other: bridged packets pass no packet rules.",
            fix="Load the module br_netfilter and set sysctl net.bridge.bridge-nf-call-iptables=1.",
        )


def agent_notes(*, scratch_is_limited: bool) -> Iterator[Note]:
    """Yield a note for everything that this agent's own rights leave open."""
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
