"""Stores a portal's mark in the broker. A changed mark reveals another portal with the same deployment name."""

from __future__ import annotations

from django.conf import settings
from redis import Redis
from redis.backoff import NoBackoff
from redis.exceptions import RedisError
from redis.retry import Retry

from backendai.base.wire.broker.accounts import BrokerAway

_TIMEOUT_SECONDS = 2.0


def swap_mark(mark: str) -> str:
    """Write this portal's mark to the broker, and return the previous mark; "" if there was none. Raises BrokerAway."""
    redis = Redis.from_url(
        settings.REDIS_URL,
        decode_responses=True,
        socket_timeout=_TIMEOUT_SECONDS,
        socket_connect_timeout=_TIMEOUT_SECONDS,
        retry=Retry(NoBackoff(), 0),
    )
    try:
        return str(redis.getset(f"{settings.DEPLOYMENT}:portal-mark", mark) or "")
    except (RedisError, OSError) as error:
        raise BrokerAway(str(error)) from error
    finally:
        redis.close()
