"""Asks agents for the state of a service: whether it is up, is starting, or has failed."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import aiohttp
from django.utils import timezone

from backendai.base.core.messages import Message
from backendai.base.wire.fields import text_of
from backendai.gates.gateways.dialing import DIAL_SECONDS
from backendai.gates.gateways.targets import Target
from backendai.gates.gateways.tickets import ticket_for
from backendai.gates.gateways.tunnel import NoTunnel

_ANSWER_SECONDS = 40.0  # an engine that is busy takes its time
_LARGEST_ANSWER = 64 * 2**10
_NONSENSE = (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError)


@dataclass(frozen=True, slots=True)
class AppState:
    """The state of a service: ready, starting, failed or absent. ``path``: its first page. ``log``: its last output.
    ``percent``: how much is done of what it waits for, where that is known.
    """

    state: str
    message: str
    path: str
    log: str
    seconds: float
    percent: int | None


async def look(
    client: aiohttp.ClientSession, target: Target, *, again: bool, arguments: Sequence[str] = ()
) -> AppState:
    """Return the state of the service; the agent starts it with these arguments if necessary. Raises NoTunnel."""
    url = f"{target.gateway_url.rstrip('/')}/kernels/{target.kernel_id}/app"
    headers = ticket_for(
        target.kernel_id, target.generation, "app", timezone.now(), service=target.service, port=target.port
    )
    timeout = aiohttp.ClientTimeout(total=_ANSWER_SECONDS * target.slowness, sock_connect=DIAL_SECONDS)
    query = {"again": "1"} if again else {}
    try:
        asking = client.post(
            url,
            params=query,
            json={"arguments": list(arguments)},
            headers=headers,
            timeout=timeout,
            allow_redirects=False,
        )
        async with asking as answer:
            raw = await answer.content.read(_LARGEST_ANSWER)
            while len(raw) < _LARGEST_ANSWER and (more := await answer.content.read(_LARGEST_ANSWER - len(raw))):
                raw += more
            said: dict[str, Any] = json.loads(raw)
            if answer.status != 200:
                raise NoTunnel(str(said["code"]), text_of(said["detail"], said.get("told")))
        return AppState(
            state=str(said.get("state")),
            message=text_of(said.get("message", ""), said.get("told")),
            path=_own_path(str(said.get("path", "/"))),
            log=str(said.get("log", "")),
            seconds=float(said.get("seconds", 0.0)),
            percent=_percent(said.get("percent")),
        )
    except NoTunnel:
        raise
    except (aiohttp.ClientError, OSError, *_NONSENSE) as error:
        raise NoTunnel("node-unreachable", Message("The agent of this session is not reachable.")) from error


def _percent(said: Any) -> int | None:
    return min(max(said, 0), 100) if isinstance(said, int) else None


def _own_path(path: str) -> str:
    """Return the page's path, or ``/`` for one that might leave the app's own origin, as agents are not trusted."""
    odd = path[1:2] in ("/", "\\") or not path.isprintable() or not path.isascii()
    return "/" if odd or not path.startswith("/") else path
