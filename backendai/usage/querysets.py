"""Querysets of usage, with their visibility."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from django.db import models

if TYPE_CHECKING:
    from backendai.accounts.models import User


class UsageQuerySet(models.QuerySet[Any]):
    def visible_to(self, user: User) -> UsageQuerySet:
        """Return the sums that the user may see: superadmins all, domain admins those of their domain, others their
        own."""
        if user.role == "superadmin":
            return self
        if user.role == "admin" and user.domain_id:
            return self.filter(domain=user.domain_id)
        return self.filter(user=user)
