"""Computes the maximum run time of sessions: a batch session's own limit, and the limits of its holders' policies."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from datetime import timedelta
from typing import Any
from uuid import UUID

from django.db.models import OuterRef, QuerySet, Subquery

from backendai.base.db.bulk import list_of, listed
from backendai.domain.accounts.models import KeyPair
from backendai.domain.compute.models import ComputeSession

_LIFETIMES = (
    "owner__policy__max_session_lifetime",
    "project__policy__max_session_lifetime",
    "project__domain__policy__max_session_lifetime",
    "key_pair_lifetime",
)


def longest_runs(session_ids: Collection[UUID]) -> dict[UUID, timedelta]:
    """Return the maximum run time of sessions, by session id; unlimited sessions are missing. At most one query."""
    return {pk: min(found) for pk, *limits in _read(session_ids) if (found := _set_ones(limits))}


def longest_allowed(session_ids: Collection[UUID]) -> dict[UUID, timedelta]:
    """Return the run time that the policies allow sessions now, by session id; unlimited sessions are missing. A batch
    session's own limit does not count. At most one query."""
    return {pk: min(found) for pk, _, *limits in _read(session_ids) if (found := _set_ones(limits))}


def _read(session_ids: Collection[UUID]) -> Iterable[Any]:
    return list(_limits_of(list_of(session_ids))) if session_ids else ()


def _set_ones(limits: Iterable[timedelta | None]) -> list[timedelta]:
    return [limit for limit in limits if limit is not None]


def _limits_of(sessions: str) -> QuerySet[Any, Any]:
    lifetime = KeyPair.objects.filter(access_key=OuterRef("access_key")).values("policy__max_session_lifetime")
    rows = ComputeSession.objects.filter(pk__in=listed(sessions)).annotate(key_pair_lifetime=Subquery(lifetime[:1]))
    return rows.order_by().values_list("pk", "batch_timeout", *_LIFETIMES)
