"""Querysets of background jobs, with their visibility."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable
from datetime import datetime
from typing import Any

from django.conf import settings
from django.core.serializers.json import DjangoJSONEncoder
from django.db import models, transaction
from django.db.models import Exists, F, OuterRef, Q

_copies = logging.getLogger("backendai.audit")


class AuditQuerySet(models.QuerySet[Any]):
    def bulk_create(self, objs: Iterable[Any], *args: Any, **kwargs: Any) -> list[Any]:
        """Write entries; after the commit, copies of them go to BACKENDAI_AUDIT_LOG."""
        entries = super().bulk_create(objs, *args, **kwargs)
        if settings.COPIES_AUDIT and entries:
            transaction.on_commit(lambda: _copy(entries), robust=True)
        return entries


def _copy(entries: list[Any]) -> None:
    """Log each entry as JSON."""
    names = ("at", "action", "target_type", "target_id", "details", "address", "request_id")
    for entry in entries:
        told = {name: getattr(entry, name) for name in names}
        _copies.info("%s", json.dumps({"actor": entry.actor_id, **told}, cls=DjangoJSONEncoder, ensure_ascii=False))


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
