"""Whose background work is shown to whom."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from django.db import models
from django.db.models import Exists, F, OuterRef, Q


class JobQuerySet(models.QuerySet[Any]):
    """Background jobs."""

    def visible_to(self, user: Any) -> JobQuerySet:
        """One's own; superadmins see all."""
        return self if user.role == "superadmin" else self.filter(owner=user)

    def running(self) -> JobQuerySet:
        """Those that go on."""
        return self.filter(status="RUNNING")

    def newest_failed(self, kind: str) -> JobQuerySet:
        """The newest job of each subject of this kind, where it failed or was cancelled."""
        newer = self.model.objects.filter(kind=kind, subject=OuterRef("subject"), created_at__gt=OuterRef("created_at"))
        return self.filter(~Exists(newer), kind=kind, status__in=("FAILED", "CANCELLED"))

    def in_bell_of(self, user: Any) -> JobQuerySet:
        """What the user asked for and has not put away."""
        return self.filter(owner=user, cleared_at=None)

    def unseen(self) -> JobQuerySet:
        """Those that ended, and nobody has looked since."""
        return self.exclude(status="RUNNING").filter(seen_at=None)

    def overdue(self, now: datetime) -> JobQuerySet:
        """Running ones that are past their deadline, or silent for longer than they may be."""
        return self.running().filter(Q(deadline_at__lt=now) | Q(updated_at__lt=now - F("silence_limit")))
