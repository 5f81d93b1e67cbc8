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
        """Sessions that have not ended."""
        return self.filter(status__one_of=LIVE)

    def finished(self) -> SessionQuerySet:
        """Sessions that have ended."""
        return self.filter(status__one_of=TERMINAL)

    def pending(self) -> SessionQuerySet:
        """Sessions that wait to be placed."""
        return self.filter(status__one_of=_PENDING)

    def running(self) -> SessionQuerySet:
        """Sessions whose status is RUNNING."""
        return self.filter(status=Status.RUNNING)


class KernelQuerySet(models.QuerySet[Any]):
    """Kernels."""

    def placed(self) -> KernelQuerySet:
        """Kernels on an agent that have not ended: they hold slots."""
        return self.filter(status__in=PLACED)

    def live(self) -> KernelQuerySet:
        """Kernels that have not ended."""
        return self.filter(status__in=LIVE)


class AllocationQuerySet(models.QuerySet[Any]):
    """Rows of the ledger."""

    def of_live(self) -> AllocationQuerySet:
        """Return the rows of live sessions, which are all rows. The join lets the database start with the few live
        sessions."""
        return self.filter(kernel__session__status__one_of=LIVE)


class LaunchRecordQuerySet(models.QuerySet[Any]):
    """Recent launches of the form."""

    def visible_to(self, user: User) -> LaunchRecordQuerySet:
        """The user's own launches, whatever the user's role."""
        return self.filter(owner=user)
