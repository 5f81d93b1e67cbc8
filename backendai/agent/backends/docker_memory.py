"""Determines whether a kernel ended for lack of memory, even if the engine learns it late.

The engine sets its flag when the main process ends. On a busy machine the out-of-memory message arrives a moment later,
and the flag stays wrong; only the engine's events contain it.
"""

from __future__ import annotations

import json
from datetime import datetime
from typing import Any

import requests
import urllib3

from backendai.agent.backends.base import BackendError
from backendai.agent.backends.docker_end import OUT_OF_MEMORY
from backendai.agent.backends.docker_engine import UNREACHABLE, Engine

_HEAD_SECONDS = 10.0
_LATE_SECONDS = 0.7


def ran_out_of_memory(engine: Engine, container: dict[str, Any]) -> bool:
    """Return whether an inspected container's main process was killed for lack of memory. Use it inside ``asking``.

    Waits 0.7 s for a late event, only if limit and exit code leave the question open. Raises BackendError if the engine
    does not start to answer within 10 s.
    """
    state = container["State"]
    # the engine's flag is also set when only a child process was killed
    if state["Running"] or state["ExitCode"] != OUT_OF_MEMORY:
        return False
    if state["OOMKilled"] or not container["HostConfig"]["Memory"]:
        return bool(state["OOMKilled"])
    since = datetime.fromisoformat(state["StartedAt"][:19] + "+00:00").timestamp()
    return _has_event(engine, container["Id"], "oom", since=int(since))


def _has_event(engine: Engine, container_id: str, name: str, *, since: int) -> bool:
    """Return whether such an event exists or arrives now. The SDK's own call would block for ever, and an end time
    would be compared with the engine's clock, which may differ from ours."""
    client = engine.client
    filters = {"type": ["container"], "container": [container_id], "event": [name]}
    response = client.get(
        f"{client.base_url}/v{client.api_version}/events",
        params={"since": since, "filters": json.dumps(filters)},
        stream=True,
        timeout=_HEAD_SECONDS,
    )
    with response:
        response.raise_for_status()
        return _says_something(response, _LATE_SECONDS)


def _says_something(response: requests.Response, seconds: float) -> bool:
    """Return whether a line arrives before ``seconds`` of silence. Raises BackendError if the engine disconnects."""
    connection = response.raw.connection
    if connection is not None and connection.sock is not None:
        connection.sock.settimeout(seconds)
    try:
        if any(response.iter_lines()):
            return True
    except requests.ConnectionError as error:
        if error.args and isinstance(error.args[0], urllib3.exceptions.ReadTimeoutError):
            return False
        raise
    raise BackendError("The container engine closed its event stream.", code=UNREACHABLE)
