"""Who may see which run, and the states that the rest asks for."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from django.db import models

if TYPE_CHECKING:
    from backendai.domain.accounts.models import User


class RunQuerySet(models.QuerySet[Any]):
    """Runs."""

    def visible_to(self, user: User) -> RunQuerySet:
        """All for superadmins, the domain's for its admins, else one's own."""
        if user.role == "superadmin":
            return self
        if user.role == "admin" and user.domain_id:
            return self.filter(project__domain_id=user.domain_id)
        return self.filter(owner=user)

    def unfinished(self) -> RunQuerySet:
        """Those of which something may still happen."""
        return self.filter(ended_at=None)
