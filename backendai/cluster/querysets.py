"""Who may use which resource group, and which agents count."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Any

from django.db import models
from django.db.models import Q

if TYPE_CHECKING:
    from backendai.accounts.models import Project, User


class ResourceGroupQuerySet(models.QuerySet[Any]):
    """Resource groups."""

    def visible_to(self, user: User) -> ResourceGroupQuerySet:
        """All for superadmins, else the active ones open to the user's domain or one of their projects."""
        if user.role == "superadmin":
            return self
        open_to = Q(is_public=True) | Q(projects__memberships__user=user)
        if user.domain_id:  # without it the query would ask for groups that name no domain
            open_to |= Q(domains=user.domain_id)
        return self.filter(open_to, is_active=True).distinct()

    def usable_for(self, project: Project) -> ResourceGroupQuerySet:
        """Active groups in which sessions of this project may run."""
        open_to = Q(is_public=True) | Q(domains=project.domain_id) | Q(projects=project)
        return self.filter(open_to, is_active=True).distinct()


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
