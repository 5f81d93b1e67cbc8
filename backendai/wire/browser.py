"""Events for browsers: "this session changed, look again". Lost ones cost freshness, nothing else."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from uuid import UUID

from asgiref.sync import async_to_sync
from channels.layers import get_channel_layer
from django.db import transaction

logger = logging.getLogger(__name__)

EVERYTHING = "events.all"
_REST_SECONDS = 1.0
_resting_until = 0.0


@dataclass(frozen=True, slots=True)
class SessionEvent:
    """A compute session changed; ``version`` grows with every change of the row."""

    id: str
    owner_id: str
    status: str
    version: int


def group_of(user_id: UUID | str) -> str:
    """Return the channel group that carries one person's events."""
    return f"events.user.{user_id}"


def publish_on_commit(events: Iterable[SessionEvent]) -> None:
    """Tell the owners' and administrators' browsers when the current transaction has committed."""
    batch = list(events)
    if batch:
        transaction.on_commit(lambda: publish(batch))


def publish(events: Iterable[SessionEvent]) -> None:
    """Tell the owners' and administrators' browsers now. Never raises; rests a second after a failure."""
    global _resting_until
    if time.monotonic() < _resting_until:
        return
    try:
        async_to_sync(_send)(list(events))
    except Exception as error:  # the layer's client raises many kinds; none may reach the caller's work
        _resting_until = time.monotonic() + _REST_SECONDS
        logger.warning("browser events not sent: %s", error)


async def _send(events: list[SessionEvent]) -> None:
    layer = get_channel_layer()
    if layer is None:
        return
    for event in events:
        message = {"type": "session.changed", **asdict(event)}
        await layer.group_send(group_of(event.owner_id), message)
        await layer.group_send(EVERYTHING, message)
