"""How hints come in: Celery's Redis transport for a worker that only takes, from one list, under an account that can do
nothing else. Hints may be lost, so nothing is acknowledged and nothing is put back."""

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
_REST_SECONDS = 1.0  # between two connections at least: Celery comes back at once when a command is refused


def use_hints(address: Callable[[], str]) -> None:
    """Let ``URL`` stand for the broker whose address ``address`` returns, called anew for every connection."""

    class Transport(_Transport):
        @staticmethod
        def address() -> str:
            return address()

    _aliases["hints"] = lambda: Transport


def hint_queue(name: str) -> Queue:
    """Return the queue as this transport takes from it: nothing is acknowledged."""
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
        pass  # the portal names the queue itself: nobody looks for it by a binding, and a node writes nothing

    def _brpop_read(self, **options: Any) -> Any:
        try:
            return super()._brpop_read(**options)
        except (Empty, OSError, RedisError):
            raise
        except Exception as error:  # whatever a message holds, the next one may be a good one
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
    """Return the kind of connection that the event loop forgets when it breaks."""

    class Watched(plain):
        def disconnect(self, *args: Any, **kwargs: Any) -> None:
            super().disconnect(*args, **kwargs)
            if channel._registered:
                channel._on_connection_disconnect(self)

    return Watched
