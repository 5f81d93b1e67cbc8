"""Whether a kernel ended because its memory was too small, also when the engine learns it late.

The engine's flag on a container is set from what it knew when the main process ended. On a busy machine the message
that the memory ran out comes a moment after that, and the flag is never repaired; only the engine's events tell.
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
    """Return whether an inspected container's main process was killed for want of memory. Waits for the engine's late
    word, a fraction of a second, only where a limit and the exit code leave the question open; use it inside
    ``asking``. Raises BackendError when the engine has not started to answer within 10 seconds: nothing is known."""
    state = container["State"]
    # the engine's word alone may mean a child that was killed while the main process went on
    if state["Running"] or state["ExitCode"] != OUT_OF_MEMORY:
        return False
    if state["OOMKilled"] or not container["HostConfig"]["Memory"]:
        return bool(state["OOMKilled"])
    since = datetime.fromisoformat(state["StartedAt"][:19] + "+00:00").timestamp()
    return _has_event(engine, container["Id"], "oom", since=int(since))


def _has_event(engine: Engine, container_id: str, name: str, *, since: int) -> bool:
    """Return whether such an event has happened, or happens in this moment. The SDK's own call would wait for ever, and
    a given end would be read on the engine's clock, which may not be ours."""
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
    """Return whether a line comes before so long a silence. The engine has started to answer: only now silence is a no.
    Raises BackendError when the engine hangs up."""
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
