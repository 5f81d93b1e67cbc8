"""Describes how a container's main process ended."""

from __future__ import annotations

import re
import signal
from typing import Any
from uuid import UUID

from backendai.agent.backends.base import Ended
from backendai.agent.backends.docker_engine import PREFIX
from backendai.core.messages import Message
from backendai.core.slots import format_size
from backendai.wire.messages import KernelSighting

_EXITED = re.compile(r"Exited \((-?\d+)\)")
_KILLED = 128
OUT_OF_MEMORY = 137  # the exit code after SIGKILL, for lack of memory or other reasons


def is_alive(container: dict[str, Any]) -> bool:
    """Return whether an inspected container's main process runs."""
    return bool(container["State"]["Running"])


def how_it_ended(container: dict[str, Any], *, ordered: bool, starved: bool) -> Ended | None:
    """Return how an inspected container's main process ended; None before its start and while it runs. ``ordered``: the
    agent stopped it. ``starved``: it ran out of memory."""
    state = container["State"]
    if state["Running"] or state["Status"] == "created":
        return None
    code = state["ExitCode"]
    if ordered:
        return Ended(code, "", Message("The kernel was stopped."))
    if starved:
        limit = format_size(container["HostConfig"]["Memory"])
        return Ended(code, "out-of-memory", Message("The kernel ran out of memory: its limit is {limit}.", limit=limit))
    return Ended(code, "exited", Message("The main process {exit_code}.", exit_code=fate(code)))


def fate(code: int) -> str:
    """Return how a process with this exit code ended, as the end of a sentence."""
    try:
        name = signal.Signals(code - _KILLED).name
    except ValueError:
        return Message("ended with exit code {exit_code}", exit_code=code)
    return Message("was ended by {name} (exit code {exit_code})", name=name, exit_code=code)


def sighting(container: dict[str, Any]) -> KernelSighting:
    """Return the kernel in one entry of the engine's list. The exit code is only in the status text."""
    labels = container["Labels"]
    exited = _EXITED.match(container["Status"])
    return KernelSighting(
        kernel_id=UUID(labels[f"{PREFIX}kernel"]),
        generation=int(labels[f"{PREFIX}generation"]),
        running=container["State"] in ("running", "paused", "restarting"),
        container_id=container["Id"],
        exit_code=int(exited[1]) if exited else None,
    )
