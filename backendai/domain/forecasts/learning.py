"""Learns how long sessions run, from those that have ended."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import NamedTuple
from uuid import UUID

from django.db import transaction
from django.db.models import Q

from backendai.domain.compute.models import ComputeSession
from backendai.domain.compute.status import TERMINAL
from backendai.domain.forecasts.models import LengthsMark, RunLengths
from backendai.scheduler.forecasts.lengths import with_length

_MOST_AT_ONCE = 500
_LAG = timedelta(seconds=30)  # a transaction that ended a session before may still be open
_FIRST_LOOK, _KEPT = timedelta(days=90), timedelta(days=180)
FEATURES = ("pk", "owner_id", "resource_group_id", "image_id", "session_type", "startup_command")


class Features(NamedTuple):
    """What says how long a session may run."""

    pk: UUID
    owner_id: UUID
    resource_group_id: int
    image_id: UUID
    session_type: str
    startup_command: str


def keys_of(one: Features) -> tuple[str, ...]:
    """Return the keys of the groups of sessions to which this one belongs, the narrowest first."""
    owner, image, kind = f"owner {one.owner_id}", f"image {one.image_id}", f"type {one.session_type}"
    command = hashlib.sha256(one.startup_command.encode()).hexdigest()
    group = f"group {one.resource_group_id}"
    groups = (owner, image, command, kind), (owner, image, kind), (owner, kind), (group, image, kind), (group, kind)
    return tuple(hashlib.sha256(" ".join(parts).encode()).hexdigest()[:32] for parts in groups)


def learn_lengths(now: datetime) -> int:
    """Count the lengths of sessions that have ended since the last call, at most ``_MOST_AT_ONCE``; returns 0, as
    nothing is repaired. Four statements, two if none has ended."""
    with transaction.atomic():
        mark, _ = LengthsMark.objects.select_for_update().get_or_create(
            pk=1, defaults={"ended_at": now - _FIRST_LOOK, "session_id": UUID(int=0)}
        )
        after = Q(ended_at__gt=mark.ended_at) | Q(ended_at=mark.ended_at, pk__gt=mark.session_id)
        ended = ComputeSession.objects.filter(after, status__one_of=TERMINAL, ended_at__lt=now - _LAG)
        rows = list(ended.order_by("ended_at", "pk").values_list(*FEATURES, "started_at", "ended_at")[:_MOST_AT_ONCE])
        if rows:
            _count(((Features(*row[:-2]), row[-1] - row[-2]) for row in rows if row[-2]), now)
            mark.ended_at, mark.session_id = rows[-1][-1], rows[-1][0]
            mark.save()
    return 0


def _count(lengths: Iterable[tuple[Features, timedelta]], now: datetime) -> None:
    by_key: dict[str, list[float]] = {}
    for features, length in lengths:
        for key in keys_of(features):
            by_key.setdefault(key, []).append(length.total_seconds())
    known = counts_of(by_key)
    changed = []
    for key, seconds in by_key.items():
        counts = known.get(key, [])
        for each in seconds:
            counts = with_length(counts, each)
        changed.append(RunLengths(key=key, counts=counts, updated_at=now))
    RunLengths.objects.bulk_create(
        changed, update_conflicts=True, unique_fields=["key"], update_fields=["counts", "updated_at"]
    )


def counts_of(keys: Iterable[str]) -> dict[str, list[float]]:
    """Return the counts by key; unknown keys are missing. One query."""
    return {key: row.counts for key, row in RunLengths.objects.in_bulk(list(keys)).items()}


def delete_old_lengths(now: datetime) -> int:
    """Delete the lengths of groups without a new session for half a year; returns how many."""
    return RunLengths.objects.filter(updated_at__lt=now - _KEPT).delete()[0]
