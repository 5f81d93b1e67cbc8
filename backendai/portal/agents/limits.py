"""Limits rate and size of one agent's messages, so that a compromised agent cannot overload the portal."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from uuid import UUID

from pydantic import ValidationError

from backendai.base.wire.rates import Rate, take_each
from backendai.domain.cluster.models.groups import Agent

# Agents sync every 5 s; without a broker, while they have work, up to twice a second.
SYNCS, MINUTE, SYNCS_AT_ONCE = 240, 60.0, 60
_TOO_MUCH = frozenset({"too_long", "string_too_long"})


def too_fast(agents: Sequence[Agent], now: datetime) -> dict[UUID, float]:
    """Count one sync of each of these agents. Returns the seconds that agents above the rate have to wait, by agent id.
    One round trip; nothing is limited while Redis is down."""
    rates = [Rate(f"node:{agent.pk}", SYNCS, MINUTE, SYNCS_AT_ONCE) for agent in agents]
    waits = take_each(rates, now=now.timestamp())
    return {agent.pk: wait for agent, wait in zip(agents, waits, strict=True) if wait > 0}


def is_too_much(error: Exception) -> bool:
    """Return whether a message was rejected because it exceeds a size limit."""
    return isinstance(error, ValidationError) and any(one["type"] in _TOO_MUCH for one in error.errors())
