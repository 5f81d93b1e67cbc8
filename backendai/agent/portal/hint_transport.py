"""Celery's Redis transport for an agent that only receives hints: one list, under an account with no other rights. As
hints may be lost, none is acknowledged or requeued."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from queue import Empty
from typing import Any

from kombu import Queue
from kombu.transport import TRANSPORT_ALIASES
from kombu.transport import redis as kombu_redis
from redis.connection import Connection, parse_url
from redis.exceptions import RedisError

logger = logging.getLogger(__name__)

URL = "hints://broker"
_HEALTH_SECONDS = 25.0
_RedisChannel: Any = kombu_redis.Channel
_RedisTransport: Any = kombu_redis.Transport
_aliases: dict[str, Any] = TRANSPORT_ALIASES
_REST_SECONDS = 1.0  # least time between connections: Celery reconnects at once after a refused command


def use_hints(address: Callable[[], str]) -> None:
    """Register ``URL`` as the broker whose address ``address`` returns, called again for every connection."""

    class Transport(_Transport):
        @staticmethod
        def address() -> str:
            return address()

    _aliases["hints"] = lambda: Transport


def hint_queue(name: str) -> Queue:
    """Return the agent's hint queue, without acknowledgements."""
    return Queue(name, routing_key=name, no_ack=True)


class _Channel(_RedisChannel):
    ack_emulation = False
    priority_steps = [0]

    def _connparams(self, asynchronous: bool = False) -> dict[str, Any]:
        told = parse_url(self.connection.address())  # type: ignore[no-untyped-call]
        plain = told.pop("connection_class", Connection)
        kind = _watched(plain, self) if asynchronous else plain
        return {"db": 0, "health_check_interval": _HEALTH_SECONDS, **told, "connection_class": kind}

    def _queue_bind(self, *args: Any) -> None:
        pass  # the portal names the queue, so no binding is needed, and agents must not write

    def _brpop_read(self, **options: Any) -> Any:
        try:
            return super()._brpop_read(**options)
        except (Empty, OSError, RedisError):
            raise
        except Exception as error:  # an invalid message must not stop the consumer
            logger.warning("dropped a message that is no hint: %r", error)
            raise Empty from error


class _Transport(_RedisTransport):
    Channel = _Channel
    _connected_at = -_REST_SECONDS

    @staticmethod
    def address() -> str:
        raise NotImplementedError

    def establish_connection(self) -> Any:
        kind = type(self)
        time.sleep(max(0.0, kind._connected_at + _REST_SECONDS - time.monotonic()))
        kind._connected_at = time.monotonic()
        return super().establish_connection()


def _watched(plain: Any, channel: _Channel) -> Any:
    """Return a connection class that unregisters itself from the event loop when it breaks."""

    class Watched(plain):
        def disconnect(self, *args: Any, **kwargs: Any) -> None:
            super().disconnect(*args, **kwargs)
            if channel._registered:
                channel._on_connection_disconnect(self)

    return Watched
