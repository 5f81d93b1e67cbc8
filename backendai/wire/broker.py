"""Hints over the broker: the only place that sends a Celery message from the portal.

A hint saves seconds and carries ids only. A broker that is down must cost the request nothing: one short try, and
after a failure none for ``_REST_SECONDS``.
"""

from __future__ import annotations

import logging
import threading
import time
from functools import cache

from celery import Celery
from django.conf import settings
from django.db import transaction
from kombu.exceptions import KombuError
from redis.exceptions import RedisError

from backendai.wire.queues import broker_address

logger = logging.getLogger(__name__)

_REST_SECONDS = 1.0
_resting_until = 0.0
_lock = threading.Lock()


def hint(task: str, *args: str | int, queue: str) -> bool:
    """Send a hint now; returns whether the broker took it. Never raises and never waits long."""
    global _resting_until
    if time.monotonic() < _resting_until:
        return False
    try:
        _producer().send_task(task, args=args, queue=queue, ignore_result=True, retry=False, expires=60)
    except (KombuError, RedisError, OSError) as error:
        with _lock:
            _resting_until = time.monotonic() + _REST_SECONDS
        logger.warning("hint %s not sent: %s", task, error)
        return False
    return True


def hint_on_commit(task: str, *args: str | int, queue: str) -> None:
    """Send a hint when the current transaction has committed (at once outside one)."""
    transaction.on_commit(lambda: hint(task, *args, queue=queue))


@cache
def _producer() -> Celery:
    # Consumers retry for ever; a producer must not: kombu would reconnect for six seconds inside the request.
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
