"""Who may see which endpoint, and the states that the rest asks for."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from django.db import models
from django.db.models import Q

from backendai.scheduler.serving.snapshot import DesiredState, ReplicaState

if TYPE_CHECKING:
    from backendai.domain.accounts.models import User


class EndpointQuerySet(models.QuerySet[Any]):
    """Endpoints."""

    def visible_to(self, user: User) -> EndpointQuerySet:
        """All for superadmins, the domain's for its admins, else one's own."""
        if user.role == "superadmin":
            return self
        if user.role == "admin" and user.domain_id:
            return self.filter(project__domain_id=user.domain_id)
        return self.filter(owner=user)

    def live(self) -> EndpointQuerySet:
        """Not deleted."""
        return self.exclude(wish=DesiredState.DELETED)

    def unfinished(self) -> EndpointQuerySet:
        """Not deleted, or deleted with replicas that have not ended."""
        return self.filter(~Q(wish=DesiredState.DELETED) | Q(replicas__in=self._live_replicas())).distinct()

    def _live_replicas(self) -> models.QuerySet[Any]:
        replicas: models.QuerySet[Any] = self.model.replicas.rel.related_model.objects.live()
        return replicas


class ReplicaQuerySet(models.QuerySet[Any]):
    """Replicas."""

    def live(self) -> ReplicaQuerySet:
        """Not ended."""
        return self.exclude(state=ReplicaState.ENDED)


class EndpointTokenQuerySet(models.QuerySet[Any]):
    """Tokens of endpoints."""

    def valid_at(self, now: Any) -> EndpointTokenQuerySet:
        """Neither revoked nor over."""
        return self.filter(Q(expires_at=None) | Q(expires_at__gt=now), revoked_at=None)
