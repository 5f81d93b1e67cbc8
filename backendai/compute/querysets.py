"""Querysets: visibility of sessions, and common groups of statuses."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from django.db import models

from backendai.compute.status import LIVE, PLACED, TERMINAL, Status

if TYPE_CHECKING:
    from backendai.accounts.models import User

_PENDING = frozenset({Status.PENDING})


class SessionQuerySet(models.QuerySet[Any]):
    """Compute sessions."""

    def visible_to(self, user: User) -> SessionQuerySet:
        """All sessions for superadmins, the domain's for its admins, else the user's own, also within a project."""
        if user.role == "superadmin":
            return self
        if user.role == "admin" and user.domain_id:
            return self.filter(project__domain_id=user.domain_id)
        return self.filter(owner=user)

    def live(self) -> SessionQuerySet:
        """Not ended."""
        return self.filter(status__one_of=LIVE)

    def finished(self) -> SessionQuerySet:
        """Ended."""
        return self.filter(status__one_of=TERMINAL)

    def pending(self) -> SessionQuerySet:
        """Waiting to be placed."""
        return self.filter(status__one_of=_PENDING)

    def running(self) -> SessionQuerySet:
        """Ready to be used."""
        return self.filter(status=Status.RUNNING)


class KernelQuerySet(models.QuerySet[Any]):
    """Kernels."""

    def placed(self) -> KernelQuerySet:
        """Kernels on an agent that have not ended: they hold slots."""
        return self.filter(status__in=PLACED)

    def live(self) -> KernelQuerySet:
        """Not ended."""
        return self.filter(status__in=LIVE)


class AllocationQuerySet(models.QuerySet[Any]):
    """Rows of the ledger."""

    def of_live(self) -> AllocationQuerySet:
        """All rows. Joined with live sessions, so that the database starts with those few and not with all sessions
        ever."""
        return self.filter(kernel__session__status__one_of=LIVE)


class LaunchRecordQuerySet(models.QuerySet[Any]):
    """Recent launches of the form."""

    def visible_to(self, user: User) -> LaunchRecordQuerySet:
        """The user's own, whatever the role."""
        return self.filter(owner=user)
