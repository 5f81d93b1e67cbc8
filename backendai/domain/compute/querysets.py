"""Querysets: visibility of sessions, and common groups of statuses."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from django.db import models

from backendai.domain.compute.status import LIVE, PLACED, TERMINAL, Status

if TYPE_CHECKING:
    from backendai.domain.accounts.models import User

_PENDING = frozenset({Status.PENDING})


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
