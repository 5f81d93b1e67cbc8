"""Querysets of background jobs, with their visibility."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from django.db import models
from django.db.models import Exists, F, OuterRef, Q


class JobQuerySet(models.QuerySet[Any]):
    def visible_to(self, user: Any) -> JobQuerySet:
        """Return the user's own jobs; all for superadmins."""
        return self if user.role == "superadmin" else self.filter(owner=user)

    def running(self) -> JobQuerySet:
        """Return jobs that have not ended."""
        return self.filter(status="RUNNING")

    def newest_failed(self, kind: str) -> JobQuerySet:
        """Return the newest job of each subject of this kind if it failed or was cancelled."""
        newer = self.model.objects.filter(kind=kind, subject=OuterRef("subject"), created_at__gt=OuterRef("created_at"))
        return self.filter(~Exists(newer), kind=kind, status__in=("FAILED", "CANCELLED"))

    def in_bell_of(self, user: Any) -> JobQuerySet:
        """Return jobs that the user started and has not dismissed."""
        return self.filter(owner=user, cleared_at=None)

    def unseen(self) -> JobQuerySet:
        """Return ended jobs whose result the owner has not seen."""
        return self.exclude(status="RUNNING").filter(seen_at=None)

    def overdue(self, now: datetime) -> JobQuerySet:
        """Return running jobs that are past their deadline or silent for too long."""
        return self.running().filter(Q(deadline_at__lt=now) | Q(updated_at__lt=now - F("silence_limit")))
