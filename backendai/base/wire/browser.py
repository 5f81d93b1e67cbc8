"""Sends events to browsers: an object changed, reload it. A lost event only delays an update.

One thread per process sends events, so that no request waits for Redis.
"""

from __future__ import annotations

import asyncio
import atexit
import logging
import threading
import time
from collections.abc import Iterable
from queue import SimpleQueue
from typing import NamedTuple
from uuid import UUID

from channels.layers import get_channel_layer
from django.db import transaction

logger = logging.getLogger(__name__)

EVERYTHING = "events.all"
_PAUSE_SECONDS = 1.0
_EXIT_SECONDS = 1.0
_PATIENCE_SECONDS = 10.0  # the channel layer's client has no time-out, as that would close idle websockets
_MOST_WAITING = 10_000


class SessionEvent(NamedTuple):
    """A compute session changed; ``version`` grows with every change of the row."""

    id: str
    owner_id: str
    status: str
    version: int


class JobEvent(NamedTuple):
    """A background job changed. ``owner_id`` is empty if the platform itself started the job."""

    id: str
    owner_id: str
    kind: str
    status: str


Event = SessionEvent | JobEvent


def group_of(user_id: UUID | str) -> str:
    """Return the channel group that carries one person's events."""
    return f"events.user.{user_id}"


def publish_on_commit(events: Iterable[Event]) -> None:
    """Publish these events when the current transaction commits, or at once if there is no transaction."""
    batch = list(events)
    if batch:
        transaction.on_commit(lambda: publish(batch))


def publish(events: Iterable[Event]) -> None:
    """Queue events for the browsers of their owners and of administrators; a thread sends them soon, in this order.
    Never raises or blocks. While ``_MOST_WAITING`` calls are queued, further events are dropped."""
    _sender.put(list(events))


class _Sender:
    """A thread with its own event loop that sends events. The first event starts the thread."""

    def __init__(self) -> None:
        self._batches: SimpleQueue[list[Event] | None] = SimpleQueue()
        self._thread: threading.Thread | None = None
        self._starting = threading.Lock()

    def put(self, events: list[Event]) -> None:
        if self._batches.qsize() >= _MOST_WAITING:  # Redis hangs; pages reload by themselves
            return
        self._batches.put(events)
        with self._starting:
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="browser-events", daemon=True)
                self._thread.start()
                atexit.register(self._send_remaining)

    def _run(self) -> None:
        resting_until = 0.0
        with asyncio.Runner() as runner:
            while (batch := self._take()) is not None:
                if time.monotonic() < resting_until:
                    continue
                try:
                    runner.run(asyncio.wait_for(_send(batch), _PATIENCE_SECONDS))
                except TimeoutError:
                    resting_until = time.monotonic() + _PAUSE_SECONDS
                    logger.warning("browser events not sent: Redis took longer than %s s", _PATIENCE_SECONDS)
                except Exception as error:  # the channel layer raises many kinds of errors; none may end this thread
                    resting_until = time.monotonic() + _PAUSE_SECONDS
                    logger.warning("browser events not sent: %s", error)

    def _take(self) -> list[Event] | None:
        """Wait for events and return all that are queued; None at shutdown."""
        taken = self._batches.get()
        while taken is not None and not self._batches.empty():
            more = self._batches.get()
            if more is None:
                self._batches.put(None)
                break
            taken = taken + more
        return taken

    def _send_remaining(self) -> None:
        """Send queued events when the process exits. Waits up to ``_EXIT_SECONDS``."""
        self._batches.put(None)
        if self._thread:
            self._thread.join(_EXIT_SECONDS)


async def _send(events: list[Event]) -> None:
    layer = get_channel_layer()
    if layer is None:
        return
    by_group: dict[str, list[dict[str, object]]] = {}
    for event in events:
        if isinstance(event, JobEvent):
            continue
        data: dict[str, object] = {
            "id": event.id,
            "owner_id": event.owner_id,
            "status": event.status,
            "version": event.version,
        }
        for group in _groups_of(event):
            by_group.setdefault(group, []).append(data)
    for group, some in by_group.items():  # one message for many events, as a message costs much more
        one: dict[str, object] = {"type": "session.changed", **some[0]}
        await layer.group_send(group, one if len(some) == 1 else {"type": "sessions.changed", "events": some})
    for job in _newest(events):
        for group in _groups_of(job):
            await layer.group_send(group, {"type": "job.changed", "id": job.id, "kind": job.kind, "status": job.status})


def _groups_of(event: Event) -> tuple[str, ...]:
    return (group_of(event.owner_id), EVERYTHING) if event.owner_id else (EVERYTHING,)


def _newest(events: Iterable[Event]) -> Iterable[JobEvent]:
    """Return the newest event of each job, so that a browser reloads a job only once."""
    return {event.id: event for event in events if isinstance(event, JobEvent)}.values()


_sender = _Sender()
