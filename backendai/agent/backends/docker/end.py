"""Describes how a container's main process ended."""

from __future__ import annotations

import re
from typing import Any
from uuid import UUID

from backendai.agent.backends.base import SHELL_MISSING, Ended, ended_by_itself, ended_short_of_memory
from backendai.agent.backends.docker.engine import PREFIX
from backendai.base.core.messages import Message
from backendai.base.wire.messages import KernelSighting

_EXITED = re.compile(r"Exited \((-?\d+)\)")
OOM, KILL, STOP = "oom", "kill", "stop"  # the engine's events that explain an end
NO_SHELL = "no-shell"


def is_alive(container: dict[str, Any]) -> bool:
    """Return whether an inspected container's main process runs."""
    return bool(container["State"]["Running"])


def how_it_ended(container: dict[str, Any], *, ordered: bool, cause: str) -> Ended | None:
    """Return how an inspected container's main process ended; None before its start and while it runs. ``ordered``: the
    agent stopped it. ``cause``: what ``cause_of`` returns."""
    state = container["State"]
    if state["Running"] or state["Status"] == "created":
        return None
    code = state["ExitCode"]
    if ordered:
        return Ended(code, "", Message("The kernel was stopped."))
    if cause == OOM:
        return ended_short_of_memory(code, container["HostConfig"]["Memory"])
    if cause in (KILL, STOP):
        text = Message("Somebody or something outside the platform stopped or removed the container of this kernel.")
        return Ended(code, "container-killed", text)
    return Ended(code, "shell-missing", SHELL_MISSING) if cause == NO_SHELL else ended_by_itself(code)


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
