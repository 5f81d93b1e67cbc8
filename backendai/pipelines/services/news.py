"""What the owner of a run is told: once, when it has ended."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

from django.db.models import QuerySet
from django.utils import timezone

from backendai.accounts.models import User
from backendai.pipelines.models import Run, Status

KEPT_FOR = timedelta(days=30)


def ended_runs(user: User) -> QuerySet[Run, Any]:
    """Return one's own runs that ended lately and that one has not put away; what one cancelled is no news."""
    since = timezone.now() - KEPT_FOR
    return Run.objects.filter(owner=user, ended_at__gt=since, cleared_at=None).exclude(status=Status.CANCELLED)


def see_runs(user: User, *, now: datetime) -> None:
    """Note that the user has seen under the bell which runs ended."""
    ended_runs(user).filter(seen_at=None).update(seen_at=now)


def clear_runs(user: User, *, now: datetime) -> int:
    """Put ended runs out of the user's sight under the bell; returns how many."""
    return ended_runs(user).update(cleared_at=now, seen_at=now)
