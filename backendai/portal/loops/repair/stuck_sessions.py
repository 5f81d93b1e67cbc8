"""Repairs sessions whose status lags behind their kernels. This happens if two final reports arrive at once and neither
transaction sees the other."""

from __future__ import annotations

from datetime import datetime

from django.db import transaction
from django.db.models import F

from backendai.domain.compute.models.sessions import ComputeSession
from backendai.domain.compute.services.life.follow import follow
from backendai.domain.compute.status import LIVE, Status

_MOST_AT_ONCE = 1000


def follow_kernels(now: datetime) -> int:
    """Update the status of up to ``_MOST_AT_ONCE`` sessions that differs from the statuses of all their kernels.
    Returns 0, as most of these sessions are only in transition."""
    apart = ComputeSession.objects.filter(status__in=LIVE - {Status.PENDING}).exclude(kernels__status=F("status"))
    sessions = list(apart.values_list("pk", flat=True)[:_MOST_AT_ONCE])
    if sessions:
        with transaction.atomic():
            follow(sessions, now=now)
    return 0
