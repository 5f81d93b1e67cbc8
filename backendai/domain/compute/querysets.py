"""Querysets: visibility of sessions, and common groups of statuses."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from django.db import models
from django.db.models import F, Lookup

from backendai.base.core.labels import MOST_LABELS, searched_label
from backendai.domain.compute.status import LIVE, PLACED, TERMINAL, Status

if TYPE_CHECKING:
    from backendai.domain.accounts.models import User

_PENDING = frozenset({Status.PENDING})


class HasLabel(Lookup):
    """Whether a JSON column contains a label; ``rhs``: its key, and its value or None for any."""

    lookup_name = "has_label"
    prepare_rhs = False

    def as_sql(self, compiler: Any, connection: Any) -> tuple[str, Any]:
        """Return the condition for PostgreSQL."""
        column, parameters = self.process_lhs(compiler, connection)
        key, value = self.rhs
        if value is None:
            return f"jsonb_exists({column}, %s)", [*parameters, key]
        return f"{column} @> %s::jsonb", [*parameters, json.dumps({key: value})]

    def as_sqlite(self, compiler: Any, connection: Any) -> tuple[str, Any]:
        """Return the condition for SQLite. Keys of labels have no quotes."""
        column, parameters = self.process_lhs(compiler, connection)
        key, value = self.rhs
        found, path = f"JSON_EXTRACT({column}, %s)", [*parameters, f'$."{key}"']
        return (f"{found} IS NOT NULL", path) if value is None else (f"{found} = %s", [*path, value])


def with_labels(rows: Any, texts: Sequence[str], column: str = "labels") -> Any:
    """Return the rows whose column of labels has each of the labels ``key`` or ``key=value``, of which 16 count."""
    for text in texts[:MOST_LABELS]:
        wanted = searched_label(text)
        rows = rows.filter(HasLabel(F(column), wanted)) if wanted else rows.none()
    return rows


class SessionQuerySet(models.QuerySet[Any]):
    def visible_to(self, user: User) -> SessionQuerySet:
        """Return the sessions that the user may see: superadmins see all, domain admins the sessions of their domain,
        others only their own, also within a project."""
        if user.role == "superadmin":
            return self
        if user.role == "admin" and user.domain_id:
            return self.filter(project__domain_id=user.domain_id)
        return self.filter(owner=user)

    def live(self) -> SessionQuerySet:
        """Return sessions that have not ended."""
        return self.filter(status__one_of=LIVE)

    def finished(self) -> SessionQuerySet:
        """Return sessions that have ended."""
        return self.filter(status__one_of=TERMINAL)

    def pending(self) -> SessionQuerySet:
        """Return sessions that wait to be placed."""
        return self.filter(status__one_of=_PENDING)

    def running(self) -> SessionQuerySet:
        """Return sessions with the status RUNNING."""
        return self.filter(status=Status.RUNNING)


class KernelQuerySet(models.QuerySet[Any]):
    def placed(self) -> KernelQuerySet:
        """Return kernels that are on an agent and have not ended, and so hold slots."""
        return self.filter(status__in=PLACED)

    def live(self) -> KernelQuerySet:
        """Return kernels that have not ended."""
        return self.filter(status__in=LIVE)


class AllocationQuerySet(models.QuerySet[Any]):
    def of_live(self) -> AllocationQuerySet:
        """Return all rows, found through live sessions. Every row belongs to a live session, and these are few."""
        return self.filter(kernel__session__status__one_of=LIVE)


class LaunchRecordQuerySet(models.QuerySet[Any]):
    def visible_to(self, user: User) -> LaunchRecordQuerySet:
        """Return the user's own launches. Administrators, too, get only their own."""
        return self.filter(owner=user)
