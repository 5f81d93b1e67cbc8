"""Reads the input of the fair strategies from the database: weights and past usage of holders."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator
from datetime import UTC, date, datetime, time, timedelta
from typing import Any
from uuid import UUID

from django.db import connection

from backendai.base.core.slots import MILLI, Slots
from backendai.domain.accounts.models import Domain, Project, User
from backendai.domain.accounts.policies.applicable import DOMAIN, PROJECT, USER, key_of
from backendai.domain.cluster.models import ResourceGroup
from backendai.scheduler.snapshot import Holder

LOOKBACK_HALF_LIVES = 4
_KINDS: tuple[tuple[str, Any], ...] = ((USER, User), (PROJECT, Project), (DOMAIN, Domain))
_DAY = timedelta(days=1)


def read_weights(holders: Collection[Holder]) -> dict[str, float]:
    """Return the weights of these users, projects and domains, by key. Weights of 1 are left out. Three queries."""
    wanted = _keys(holders)
    uneven = {
        key_of(scope, pk): weight
        for scope, model in _KINDS
        for pk, weight in model.objects.order_by().exclude(share_weight=1.0).values_list("pk", "share_weight")
    }
    return {key: weight for key, weight in uneven.items() if key in wanted}


def read_past_usage(
    group: ResourceGroup, holders: Collection[Holder], capacity: Slots, now: datetime
) -> dict[str, float]:
    """Return the past usage of holders as a share of the group's capacity, by key.

    Usage is halved for each half-life of its age, and ignored after four. The share is the mean over slots of usage /
    (capacity × period). Holders without usage are missing. One query.
    """
    lookback = group.usage_half_life * LOOKBACK_HALF_LIVES
    wanted = _keys(holders)
    shares: dict[str, float] = defaultdict(float)
    if not wanted or not capacity:
        return {}
    for user, project, domain, slot, used in _decayed(group, now, lookback):
        if capacity[slot] <= 0:
            continue
        share = used * MILLI / (capacity[slot] * lookback.total_seconds()) / len(capacity)
        for key in (key_of(USER, user), key_of(PROJECT, project), key_of(DOMAIN, domain)):
            if key in wanted:
                shares[key] += share
    return dict(shares)


def _keys(holders: Collection[Holder]) -> set[str]:
    return {key for holder in set(holders) for key in (holder.user, holder.project, holder.domain) if key}


def _decayed(group: ResourceGroup, now: datetime, lookback: timedelta) -> Iterator[tuple[Any, ...]]:
    """Yield tuples (user, project, domain, slot, decayed amount × seconds), summed over days by the database."""
    postgres = connection.vendor == "postgresql"
    days = list(_weights_of_days(now, lookback, group.usage_half_life))
    row = "(%s::date, %s::float8)" if postgres else "(%s, %s)"
    statement = (
        f"WITH weights(day, weight) AS (VALUES {', '.join([row] * len(days))}) "  # noqa: S608
        "SELECT user_id, project_id, domain_id, slot, SUM(amount_seconds * weight) "
        "FROM usage_usagebucket JOIN weights ON weights.day = usage_usagebucket.day "
        "WHERE resource_group_id = %s GROUP BY user_id, project_id, domain_id, slot"
    )
    parameters = [value for day, weight in days for value in (day.isoformat(), weight)]
    with connection.cursor() as cursor:
        cursor.execute(statement, [*parameters, group.pk])
        for user, project, domain, slot, used in cursor.fetchall():
            yield _uuid(user), _uuid(project), domain, slot, used


def _weights_of_days(now: datetime, lookback: timedelta, half_life: timedelta) -> Iterator[tuple[date, float]]:
    """Yield each past day with the factor for its usage, computed for the middle of the day."""
    today = now.astimezone(UTC).date()
    day = (now - lookback).astimezone(UTC).date()
    while day <= today:
        begin = datetime.combine(day, time(), UTC)
        middle = begin + (min(begin + _DAY, now) - begin) / 2
        yield day, 0.5 ** ((now - middle) / half_life)
        day += _DAY


def _uuid(value: Any) -> UUID:
    return value if isinstance(value, UUID) else UUID(value)  # SQLite returns ids as text
