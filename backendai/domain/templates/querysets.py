"""Which templates a person may see and change."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from django.db import models
from django.db.models import Q

from backendai.domain.accounts.models import Project

if TYPE_CHECKING:
    from backendai.domain.accounts.models import User


class TemplateQuerySet(models.QuerySet[Any]):
    """Templates."""

    def visible_to(self, user: User) -> TemplateQuerySet:
        """One's own, those of one's projects and domain, and public ones; superadmins see all."""
        if user.role == "superadmin":
            return self
        projects = Project.objects.visible_to(user).values("pk")
        mine = Q(owner=user) | Q(project__in=projects) | Q(scope="public")
        return self.filter(mine | Q(domain=user.domain_id, domain__isnull=False))

    def changeable_by(self, user: User) -> TemplateQuerySet:
        """One's own, and those of projects and of the domain that one administers; superadmins change all."""
        if user.role == "superadmin":
            return self
        mine = Q(owner=user) | Q(project__in=Project.objects.managed_by(user).values("pk"))
        if user.role == "admin" and user.domain_id:
            mine |= Q(domain=user.domain_id)
        return self.filter(mine)
