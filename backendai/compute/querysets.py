"""Who may see which session, and the groups of statuses that the rest asks for."""

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
        """All for superadmins, the domain's for its admins, else one's own, also inside one project."""
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
        """On an agent and not ended: they hold slots."""
        return self.filter(status__in=PLACED)

    def live(self) -> KernelQuerySet:
        """Not ended."""
        return self.filter(status__in=LIVE)


class AllocationQuerySet(models.QuerySet[Any]):
    """The ledger."""

    def of_live(self) -> AllocationQuerySet:
        """All of it: only what lives holds anything. Said in so many words, the database begins with the few sessions
        that live and not with the many that somebody ever had."""
        return self.filter(kernel__session__status__one_of=LIVE)


class LaunchRecordQuerySet(models.QuerySet[Any]):
    """What people launched by the form."""

    def visible_to(self, user: User) -> LaunchRecordQuerySet:
        """One's own alone, whatever one's role."""
        return self.filter(owner=user)
