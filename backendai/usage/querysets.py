"""Whose use somebody may see."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from django.db import models

if TYPE_CHECKING:
    from backendai.accounts.models import User


class UsageQuerySet(models.QuerySet[Any]):
    """What was held, day by day."""

    def visible_to(self, user: User) -> UsageQuerySet:
        """Everybody's for superadmins, the domain's for its admins, else one's own."""
        if user.role == "superadmin":
            return self
        if user.role == "admin" and user.domain_id:
            return self.filter(domain=user.domain_id)
        return self.filter(user=user)
