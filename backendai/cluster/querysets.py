"""Who may use which resource group, and which agents count."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Any

from django.db import models
from django.db.models import Exists, OuterRef, Q

if TYPE_CHECKING:
    from backendai.accounts.models import KeyPair, Project, User


class ResourceGroupQuerySet(models.QuerySet[Any]):
    """Resource groups."""

    def visible_to(self, user: User) -> ResourceGroupQuerySet:
        """All for superadmins, else the active ones open to the user's domain, one of their projects or their keys."""
        if user.role == "superadmin":
            return self
        open_to = Q(is_public=True) | self._names("projects", project__memberships__user=user)
        open_to |= self._names("key_pairs", keypair__user=user, keypair__is_active=True)
        if user.domain_id:  # without it the query would ask for groups that name no domain
            open_to |= self._names("domains", domain=user.domain_id)
        return self.filter(open_to, is_active=True)

    def usable_for(self, project: Project, key_pair: KeyPair | None = None) -> ResourceGroupQuerySet:
        """Active groups in which sessions of this project, launched with this key pair, may run."""
        open_to = Q(is_public=True) | self._names("domains", domain=project.domain_id)
        open_to |= self._names("projects", project=project)
        if key_pair is not None:
            open_to |= self._names("key_pairs", keypair=key_pair)
        return self.filter(open_to, is_active=True)

    def _names(self, field: str, **of: Any) -> Q:
        """Return whether a group is open to one of these by name. No join: a group stays one row."""
        links = getattr(self.model, field).through.objects.filter(**of)
        return Q(Exists(links.filter(resourcegroup=OuterRef("pk"))))


class AgentQuerySet(models.QuerySet[Any]):
    """Agents."""

    def visible_to(self, user: User) -> AgentQuerySet:
        """Superadmins see the machines; others see their groups' totals only."""
        return self if user.role == "superadmin" else self.none()

    def registered(self) -> AgentQuerySet:
        """Every agent that may come back: alive or lost."""
        return self.exclude(status="TERMINATED")

    def silent_since(self, moment: datetime) -> AgentQuerySet:
        """Answering by the books, but not heard of since ``moment``."""
        return self.answering().filter(Q(last_seen_at__lt=moment) | Q(last_seen_at=None))

    def answering(self) -> AgentQuerySet:
        """Syncing: alive, or about to stop."""
        return self.filter(status__in=["ALIVE", "DRAINING"])


class JoinTokenQuerySet(models.QuerySet[Any]):
    """Join tokens."""

    def visible_to(self, user: User) -> JoinTokenQuerySet:
        """Superadmins alone let machines in."""
        return self if user.role == "superadmin" else self.none()
