"""Sends hints: short Celery messages that make a worker or an agent act at once. No other module of the portal sends
Celery messages.

A hint contains ids only and saves seconds; a lost hint does no harm. No caller waits for the broker. One thread per
process sends hints, several in one round trip. After a failure, this thread drops all hints for ``_PAUSE_SECONDS``.
"""

from __future__ import annotations

import atexit
import logging
import threading
import time
from collections.abc import Sequence
from functools import cache
from queue import SimpleQueue
from typing import NamedTuple

from celery import Celery
from django.conf import settings
from django.db import transaction
from kombu.exceptions import KombuError
from redis.exceptions import RedisError

from backendai.base.wire.broker.queues import broker_address

logger = logging.getLogger(__name__)

Argument = str | int | list[list[str | int]]

_PAUSE_SECONDS = 1.0
_EXIT_SECONDS = 1.0
_MOST_AT_ONCE = 1000


class _Hint(NamedTuple):
    task: str
    args: tuple[Argument, ...]
    queue: str


def hint(task: str, *args: Argument, queue: str) -> None:
    """Queue a hint for the thread that sends hints in the order of these calls. Never raises or blocks. A hint that no
    worker takes within 60 s is dropped."""
    _sender.put(_Hint(task, args, queue))


def hint_on_commit(task: str, *args: Argument, queue: str) -> None:
    """Queue a hint when the current transaction commits, or at once if there is no transaction."""
    transaction.on_commit(lambda: hint(task, *args, queue=queue))


class _Sender:
    """A thread that sends hints over its own connection. The first hint starts the thread."""

    def __init__(self) -> None:
        self._hints: SimpleQueue[_Hint | None] = SimpleQueue()
        self._thread: threading.Thread | None = None
        self._starting = threading.Lock()

    def put(self, one: _Hint) -> None:
        self._hints.put(one)
        with self._starting:
            if self._thread is None or not self._thread.is_alive():  # a forked process has no copy of the thread
                self._thread = threading.Thread(target=self._run, name="hints", daemon=True)
                self._thread.start()
                atexit.register(self._send_remaining)

    def _run(self) -> None:
        resting_until = 0.0
        while many := self._take():
            if time.monotonic() < resting_until:
                continue
            try:
                _send(many)
            except (KombuError, RedisError, OSError) as error:
                resting_until = time.monotonic() + _PAUSE_SECONDS
                logger.warning("hints not sent (%s, the first is %s): %s", len(many), many[0].task, error)
            except Exception:  # an error about one hint must not end this thread
                logger.exception("hints not sent (%s, the first is %s)", len(many), many[0].task)

    def _take(self) -> list[_Hint]:
        """Wait for hints and return up to ``_MOST_AT_ONCE`` of them; an empty list at shutdown."""
        first = self._hints.get()
        taken = [] if first is None else [first]
        while taken and len(taken) < _MOST_AT_ONCE and not self._hints.empty():
            one = self._hints.get()
            if one is None:
                self._hints.put(None)
                break
            taken.append(one)
        return taken

    def _send_remaining(self) -> None:
        """Send queued hints when the process exits. Waits up to ``_EXIT_SECONDS``."""
        self._hints.put(None)
        if self._thread:
            self._thread.join(_EXIT_SECONDS)


def _send(hints: Sequence[_Hint]) -> None:
    app = _producer()
    with app.producer_or_acquire() as producer, producer.batch():
        for task, args, queue in hints:
            # ``argsrepr`` is never read, and is slow to make for long lists.
            app.send_task(
                task,
                args=args,
                queue=queue,
                producer=producer,
                argsrepr="",
                ignore_result=True,
                retry=False,
                expires=60,
            )


@cache
def _producer() -> Celery:
    # Consumers retry for ever. A producer must not, as a late hint is useless.
    app = Celery("hints", set_as_current=False, fixups=[])
    app.conf.update(
        broker_url=broker_address(settings.REDIS_URL),
        broker_connection_timeout=1,
        broker_transport_options={
            "max_retries": 1,
            "interval_start": 0,
            "interval_step": 0,
            "interval_max": 0,
            "socket_connect_timeout": 1,
            "socket_timeout": 1,
        },
        task_serializer="json",
        task_ignore_result=True,
    )
    return app


_sender = _Sender()
