"""Which images and presets a person may pick."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from django.db import models
from django.db.models import Q

from backendai.cluster.models import ResourceGroup

if TYPE_CHECKING:
    from backendai.accounts.models import User


class ImageQuerySet(models.QuerySet[Any]):
    """Images."""

    def visible_to(self, user: User) -> ImageQuerySet:
        """Enabled images; superadmins see the others too."""
        return self if user.role == "superadmin" else self.filter(is_enabled=True)

    def usable_by(self, user: User) -> ImageQuerySet:
        """Images the user may start a session from."""
        return self.filter(is_enabled=True)


class PresetQuerySet(models.QuerySet[Any]):
    """Resource presets."""

    def visible_to(self, user: User) -> PresetQuerySet:
        """Presets of no group or of a group open to the user."""
        if user.role == "superadmin":
            return self
        groups = ResourceGroup.objects.visible_to(user).order_by()
        return self.filter(Q(resource_group=None) | Q(resource_group__in=groups))

    def in_group(self, group: ResourceGroup) -> PresetQuerySet:
        """Those of this group, and those for all groups."""
        return self.filter(Q(resource_group=None) | Q(resource_group=group))
