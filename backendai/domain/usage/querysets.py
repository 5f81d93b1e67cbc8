"""Querysets of usage, with their visibility."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from django.db import models

if TYPE_CHECKING:
    from backendai.domain.accounts.models import User


class UsageQuerySet(models.QuerySet[Any]):
    def visible_to(self, user: User) -> UsageQuerySet:
        """Return the sums that the user may see: superadmins all, domain admins those of their domain, and everybody
        those that concern them."""
        if user.role == "superadmin":
            return self
        concerned = _concerning(user)
        if user.role == "admin" and user.domain_id:
            concerned |= models.Q(domain=user.domain_id)
        return self.filter(concerned)

    def concerning(self, user: User) -> UsageQuerySet:
        """Return the user's own sums and those of the projects that the user is a project admin of."""
        return self.filter(_concerning(user))


def _concerning(user: User) -> models.Q:
    managed = user.memberships.filter(role="admin").order_by().values("project_id")
    return models.Q(user=user) | models.Q(project__in=managed)
