"""Querysets of resource groups, agents and join tokens, with the rows that a user may see."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Any

from django.db import models
from django.db.models import Exists, OuterRef, Q

if TYPE_CHECKING:
    from backendai.domain.accounts.models import KeyPair, Project, User


class ResourceGroupQuerySet(models.QuerySet[Any]):
    def visible_to(self, user: User) -> ResourceGroupQuerySet:
        """Return all groups for superadmins, else the active ones open to the user.

        They are open by the user's domain, a project, or a key pair.
        """
        if user.role == "superadmin":
            return self
        open_to = Q(is_public=True) | self._names("projects", project__memberships__user=user)
        open_to |= self._names("key_pairs", keypair__user=user, keypair__is_active=True)
        if user.domain_id:  # without it the query would ask for groups that name no domain
            open_to |= self._names("domains", domain=user.domain_id)
        return self.filter(open_to, is_active=True)

    def usable_for(self, project: Project, key_pair: KeyPair | None = None) -> ResourceGroupQuerySet:
        """Return the active groups in which sessions of this project, launched with this key pair, may run."""
        open_to = Q(is_public=True) | self._names("domains", domain=project.domain_id)
        open_to |= self._names("projects", project=project)
        if key_pair is not None:
            open_to |= self._names("key_pairs", keypair=key_pair)
        return self.filter(open_to, is_active=True)

    def _names(self, field: str, **of: Any) -> Q:
        """Return a condition for groups that are open to one of these. Uses no join, so a group stays one row."""
        links = getattr(self.model, field).through.objects.filter(**of)
        return Q(Exists(links.filter(resourcegroup=OuterRef("pk"))))


class AgentQuerySet(models.QuerySet[Any]):
    def visible_to(self, user: User) -> AgentQuerySet:
        """Return all agents for superadmins, none for others. Others see their groups' totals, and their devices on the
        wall (``planning.wall``)."""
        return self if user.role == "superadmin" else self.none()

    def registered(self) -> AgentQuerySet:
        """Return every agent that is not removed, also lost ones."""
        return self.exclude(status="TERMINATED")

    def silent_since(self, moment: datetime) -> AgentQuerySet:
        """Return the agents that count as reachable, but had no contact since ``moment``."""
        return self.answering().filter(Q(last_seen_at__lt=moment) | Q(last_seen_at=None))

    def answering(self) -> AgentQuerySet:
        """Return the reachable agents: alive or draining."""
        return self.filter(status__in=["ALIVE", "DRAINING"])


class JoinTokenQuerySet(models.QuerySet[Any]):
    def visible_to(self, user: User) -> JoinTokenQuerySet:
        """Return all join tokens for superadmins, none for others."""
        return self if user.role == "superadmin" else self.none()
