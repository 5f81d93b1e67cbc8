"""Who may see whom."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from django.db import models
from django.db.models import Q

if TYPE_CHECKING:
    from backendai.accounts.models import User


class UserQuerySet(models.QuerySet[Any]):
    """People."""

    def visible_to(self, user: User) -> UserQuerySet:
        """Everybody for superadmins, the own domain for its admins, else only oneself."""
        if user.role == "superadmin":
            return self
        if user.role == "admin":
            return self.filter(domain_id=user.domain_id)
        return self.filter(pk=user.pk)


class ProjectQuerySet(models.QuerySet[Any]):
    """Projects."""

    def visible_to(self, user: User) -> ProjectQuerySet:
        """Every project for superadmins, else those one is a member of (admins: of their domain)."""
        if user.role == "superadmin":
            return self
        mine = Q(memberships__user=user)
        if user.role == "admin":
            mine |= Q(domain_id=user.domain_id)
        return self.filter(mine).distinct()

    def usable_by(self, user: User) -> ProjectQuerySet:
        """Active projects in which the user may start sessions: those they are a member of."""
        return self.filter(memberships__user=user, is_active=True, domain__is_active=True)


class TokenQuerySet(models.QuerySet[Any]):
    """Bearer tokens."""

    def visible_to(self, user: User) -> TokenQuerySet:
        """One's own only, whatever the role."""
        return self.filter(user=user)
