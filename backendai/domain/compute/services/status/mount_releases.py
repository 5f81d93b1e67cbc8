"""Releases mounts when every kernel of a session has ended."""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime
from uuid import UUID

from backendai.base.db.bulk import among
from backendai.domain.compute.models.mounts import SessionMount


def release_mounts(session_ids: Collection[UUID], now: datetime) -> None:
    """Mark the mounts of these sessions as released, in the caller's transaction. No query for no sessions."""
    if session_ids:
        SessionMount.objects.filter(session__in=among(session_ids), released_at=None).update(released_at=now)
