"""Hints for nodes that need none: simulated nodes ask often enough, so what waits for them at the broker is dropped."""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence

from redis import Redis
from redis.exceptions import RedisError

from backendai.wire.queues import node_queue

logger = logging.getLogger(__name__)

_EVERY_SECONDS = 10.0
_TIMEOUT_SECONDS = 1.0


class UnheardHints:
    """The queues of many nodes. Without a broker there is nothing to drop."""

    def __init__(self, broker_url: str, names: Sequence[str]) -> None:
        self._queues = [node_queue(name) for name in names]
        self._dropped_at = 0.0
        self._redis: Redis | None = None
        if broker_url:
            self._redis = Redis.from_url(
                broker_url, socket_timeout=_TIMEOUT_SECONDS, socket_connect_timeout=_TIMEOUT_SECONDS
            )

    def drop(self) -> None:
        """Empty the queues, now and then. Never raises."""
        if self._redis is None or time.monotonic() - self._dropped_at < _EVERY_SECONDS:
            return
        self._dropped_at = time.monotonic()
        try:
            self._redis.unlink(*self._queues)
        except RedisError as error:
            logger.info("hints are not dropped: %s", error)
