"""Describes a container's main process: whether it runs, how it ended, and why, even if the engine learns that late.

The engine sets its flag for lack of memory when the main process ends. On a busy machine the out-of-memory message
arrives a moment later, and the flag stays wrong; only the engine's events contain it. They also contain who else ended
a container: ``docker kill``, ``docker stop`` and ``docker rm --force``.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from datetime import datetime
from typing import Any
from uuid import UUID

import requests
import urllib3

from backendai.agent.backends.base import SH, SHELL_MISSING, BackendError, Ended, ended_by_itself, ended_short_of_memory
from backendai.agent.backends.docker.engine import PREFIX, UNREACHABLE, Engine
from backendai.base.core.messages import Message
from backendai.base.wire.messages import KernelSighting

_EXITED = re.compile(r"Exited \((-?\d+)\)")
OOM, KILL, STOP = "oom", "kill", "stop"  # the engine's events that explain an end
NO_SHELL = "no-shell"
_HEAD_SECONDS = 10.0
_LATE_SECONDS = 0.7
_BY_SIGNAL = 128
_NOT_FOUND = 127


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
        frozen=container["State"] == "paused",
        container_id=container["Id"],
        exit_code=int(exited[1]) if exited else None,
    )


def cause_of(engine: Engine, container: dict[str, Any]) -> str:
    """Return what explains the end of an inspected container's main process: the engine's event ``oom``, ``kill`` or
    ``stop``, or ``no-shell``, or "". ``oom`` also if another process of the container was killed. Use it inside
    ``asking``.

    Waits 0.7 s for a late event, only after a failure whose cause is unknown. Raises BackendError if the engine does
    not start to answer within 10 s.
    """
    state = container["State"]
    if state["Running"] or state["Status"] == "created":
        return ""
    if state["OOMKilled"] or not state["ExitCode"]:
        return OOM if state["OOMKilled"] else ""
    if state["ExitCode"] == _NOT_FOUND and not engine.has_file(container["Id"], SH, seconds=_HEAD_SECONDS):
        return NO_SHELL
    since = datetime.fromisoformat(state["StartedAt"][:19] + "+00:00").timestamp()
    return _first_event(engine, container, since=int(since))


def _first_event(engine: Engine, container: dict[str, Any], *, since: int) -> str:
    """Return the first event that explains the end, if it exists or arrives now. The SDK's own call would block for
    ever, and an end time would be compared with the engine's clock, which may differ from ours."""
    client = engine.client
    filters = {"type": ["container"], "container": [container["Id"]], "event": [OOM, KILL, STOP]}
    response = client.get(
        f"{client.base_url}/v{client.api_version}/events",
        params={"since": since, "filters": json.dumps(filters)},
        stream=True,
        timeout=_HEAD_SECONDS,
    )
    with response:
        response.raise_for_status()
        code = container["State"]["ExitCode"]
        return next((name for event in _events(response, _LATE_SECONDS) if (name := _explains(event, code))), "")


def _explains(event: dict[str, Any], code: int) -> str:
    """Return the event's name if it explains this exit code: a signal that the program survived does not."""
    name, signal = str(event["Action"]), str(event["Actor"]["Attributes"].get("signal", ""))
    return "" if name == KILL and signal != str(code - _BY_SIGNAL) else name


def _events(response: requests.Response, seconds: float) -> Iterator[dict[str, Any]]:
    """Yield the events before ``seconds`` of silence. Raises BackendError if the engine disconnects."""
    connection = response.raw.connection
    if connection is not None and connection.sock is not None:
        connection.sock.settimeout(seconds)
    try:
        yield from map(json.loads, filter(None, response.iter_lines()))
    except requests.ConnectionError as error:
        if error.args and isinstance(error.args[0], urllib3.exceptions.ReadTimeoutError):
            return
        raise
    raise BackendError("The container engine closed its event stream.", code=UNREACHABLE)
