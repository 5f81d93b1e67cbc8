"""Long polls of agents: responses that wait for work, without holding a database connection."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import ParamSpec, TypeVar
from uuid import UUID

from asgiref.sync import sync_to_async
from django.db import close_old_connections, connection

from backendai.domain.compute.services.agents.node_view import has_work

P = ParamSpec("P")
T = TypeVar("T")

_POLL_SECONDS = 0.5
_newest: dict[UUID, object] = {}  # the waiting poll of each agent in this process


async def look(read: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Return ``read()`` and release its database connection at once. Waiting requests would exhaust the pool of ten."""
    return await sync_to_async(_look)(read, *args, **kwargs)


async def work_arrives(agent_id: UUID, seconds: float) -> bool:
    """Wait until the agent has work and return True. Returns False after ``seconds``, or when the agent starts another
    poll."""
    mine = _newest[agent_id] = object()
    try:
        for _ in range(int(seconds / _POLL_SECONDS)):
            await asyncio.sleep(_POLL_SECONDS)
            if _newest.get(agent_id) is not mine:
                return False
            if await look(has_work, agent_id):
                return True
        return False
    finally:
        if _newest.get(agent_id) is mine:
            del _newest[agent_id]


def _look(read: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    try:
        return read(*args, **kwargs)
    finally:
        if not connection.in_atomic_block:  # inside a caller's transaction the connection is still needed
            close_old_connections()
