"""Deletes what endpoints keep of long ago, a bounded number of rows at a time."""

from __future__ import annotations

from datetime import datetime, timedelta

from backendai.domain.serving.models import Replica, ScalingRecord, State

KEPT_FOR = timedelta(days=90)
_MOST_AT_ONCE = 5_000


def delete_old_records(now: datetime) -> int:
    """Delete decisions of more than 90 days ago; returns how many."""
    oldest = ScalingRecord.objects.order_by("pk").values_list("pk", "updated_at")[:_MOST_AT_ONCE]
    old = [pk for pk, updated_at in oldest if updated_at < now - KEPT_FOR]
    return ScalingRecord.objects.filter(pk__in=old).delete()[0] if old else 0


def delete_ended_replicas(now: datetime) -> int:
    """Delete replicas that ended more than 90 days ago; returns how many. Their sessions stay."""
    old = Replica.objects.filter(state=State.ENDED, ended_at__lt=now - KEPT_FOR).order_by().values_list("pk", flat=True)
    ended = list(old[:_MOST_AT_ONCE])
    Replica.objects.filter(pk__in=ended).delete()
    return len(ended)
