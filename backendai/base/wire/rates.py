"""Rate limits in Redis (GCRA), with one round trip for all limits of a request.

GCRA stores one number per bucket: the time at which the bucket will be full again. While Redis is down nothing is
limited, as these limits protect only against floods.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import redis
from django.conf import settings
from redis.exceptions import RedisError

logger = logging.getLogger(__name__)

_PATIENCE_SECONDS = 0.1
_PAUSE_SECONDS = 2.0
# A rejected request takes nothing from any bucket.
_TAKE = """
local now, wait, full = tonumber(ARGV[1]), 0, {}
for i = 1, #KEYS do
  full[i] = math.max(tonumber(redis.call('GET', KEYS[i]) or now), now)
  wait = math.max(wait, full[i] - now - ARGV[3 * i - 1] * math.max(ARGV[3 * i] - ARGV[3 * i + 1], 0))
end
if wait <= 0 then
  for i = 1, #KEYS do
    local till = full[i] + ARGV[3 * i - 1] * ARGV[3 * i + 1]
    redis.call('SET', KEYS[i], string.format('%.6f', till), 'PX', math.ceil((till - now) * 1000) + 1000)
  end
end
return string.format('%.6f', wait)
"""
_resting = {"until": 0.0}


@dataclass(frozen=True, slots=True)
class Rate:
    """A rate limit: ``number`` requests per ``seconds``, with bursts of up to ``burst``. ``number`` 0: no limit.
    ``cost``: tokens per request; a cost above ``burst`` needs a full bucket and makes it negative."""

    key: str
    number: int
    seconds: float
    burst: int
    cost: int = 1

    @property
    def arguments(self) -> tuple[float, int, int]:
        """The arguments of the Lua script: seconds per token, burst, cost."""
        return self.seconds / self.number, max(self.burst, 1), max(self.cost, 1)


def take(rates: Sequence[Rate], *, now: float) -> float:
    """Take the cost from all buckets, or from none; returns the seconds to wait. 0: the cost was taken, or Redis is
    down."""
    limited = [rate for rate in rates if rate.number > 0]
    if not limited or time.monotonic() < _resting["until"]:
        return 0.0
    keys = [f"{settings.DEPLOYMENT}:rate:{rate.key}" for rate in limited]
    numbers = [number for rate in limited for number in rate.arguments]
    try:
        return float(_script(settings.REDIS_URL)(keys=keys, args=[repr(now), *numbers]))
    except (RedisError, OSError) as error:
        _resting["until"] = time.monotonic() + _PAUSE_SECONDS
        logger.warning("rates are not limited for a while: %s", error)
        return 0.0


def take_each(rates: Sequence[Rate], *, now: float) -> list[float]:
    """Take the cost from each bucket independently; returns the seconds to wait for each (0: taken). One round trip;
    all 0 while Redis is down. A rate with ``number`` 0 is not allowed here."""
    if not rates or time.monotonic() < _resting["until"]:
        return [0.0] * len(rates)
    script = _script(settings.REDIS_URL)
    try:
        with script.registered_client.pipeline(transaction=False) as pipe:
            for rate in rates:
                key = f"{settings.DEPLOYMENT}:rate:{rate.key}"
                script(keys=[key], args=[repr(now), *rate.arguments], client=pipe)
            return [float(wait) for wait in pipe.execute()]
    except (RedisError, OSError) as error:
        _resting["until"] = time.monotonic() + _PAUSE_SECONDS
        logger.warning("rates are not limited for a while: %s", error)
        return [0.0] * len(rates)


@cache
def _script(url: str) -> Any:
    client = redis.Redis.from_url(url, socket_timeout=_PATIENCE_SECONDS, socket_connect_timeout=_PATIENCE_SECONDS)
    return client.register_script(_TAKE)
