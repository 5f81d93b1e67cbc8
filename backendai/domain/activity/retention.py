"""Deletes old audit entries, if the site wants that."""

from __future__ import annotations

from datetime import datetime

from django.conf import settings

from backendai.domain.activity.models import AuditEntry

_MOST_AT_ONCE = 5_000


def delete_old_audit(now: datetime) -> int:
    """Delete audit entries older than ``KEEP_AUDIT``, the oldest first; returns how many. 0: keep all."""
    if not settings.KEEP_AUDIT:
        return 0
    old = AuditEntry.objects.filter(at__lt=now - settings.KEEP_AUDIT).order_by("at")
    number: int = AuditEntry.objects.filter(pk__in=list(old.values_list("pk", flat=True)[:_MOST_AT_ONCE])).delete()[0]
    return number
