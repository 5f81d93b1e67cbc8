"""Finds the sessions that mounted the folder when a file changed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

from django.db.models import Q

from backendai.domain.accounts.models import User
from backendai.domain.compute.models import ComputeSession, SessionMount
from backendai.domain.storage.models import Folder
from backendai.domain.storage.status import Rights

_MOST_MOUNTS = 500


@dataclass(frozen=True, slots=True)
class Writer:
    """A session that could write to a path of the folder between ``start`` and ``end``."""

    session_id: UUID
    name: str
    sub_path: str
    start: datetime
    end: datetime | None

    def could_write(self, path: str, at: datetime) -> bool:
        """Return whether the session ran at that time and mounted this path."""
        is_inside = not self.sub_path or path == self.sub_path or path.startswith(f"{self.sub_path}/")
        return is_inside and self.start <= at and (self.end is None or at <= self.end)


@dataclass(frozen=True, slots=True)
class Change:
    """A session that ran when a file changed, and the number of other candidates."""

    session_id: UUID
    name: str
    others: int


def writers_of(user: User, folder: Folder, oldest: datetime) -> list[Writer]:
    """Return the visible sessions that could write to the folder since ``oldest``; one query."""
    rows = SessionMount.objects.filter(
        folder=folder, rights=Rights.EDIT, session__in=ComputeSession.objects.visible_to(user)
    )
    rows = rows.filter(Q(released_at=None) | Q(released_at__gte=oldest)).order_by("-created_at")[:_MOST_MOUNTS]
    columns = ("session_id", "session__name", "sub_path", "session__started_at", "released_at")
    return [Writer(pk, name, path, start, end) for pk, name, path, start, end in rows.values_list(*columns) if start]


def note_changes(user: User, folder: Folder, path: str, entries: Sequence[dict[str, Any]]) -> None:
    """Set ``changed`` (a datetime) and ``change`` (None: no known session) in each entry."""
    for entry in entries:
        entry["changed"] = datetime.fromtimestamp(entry.get("mtime") or 0, UTC)
    writers = writers_of(user, folder, min((entry["changed"] for entry in entries), default=datetime.now(UTC)))
    for entry in entries:
        own = entry.get("path") or (f"{path}/{entry['name']}" if path else entry["name"])
        found = [one for one in writers if entry["kind"] == "file" and one.could_write(own, entry["changed"])]
        entry["change"] = Change(found[0].session_id, found[0].name, len(found) - 1) if found else None
