"""Which images and presets a person may pick."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from django.db import models
from django.db.models import Case, Exists, OuterRef, Q, When

from backendai.accounts.models import Membership, Project
from backendai.cluster.models import ResourceGroup

if TYPE_CHECKING:
    from backendai.accounts.models import User


class ImageQuerySet(models.QuerySet[Any]):
    """Images."""

    def kept(self) -> ImageQuerySet:
        """Those that nobody has deleted; of the others only the history of sessions speaks."""
        return self.filter(deleted_at=None)

    def own_of(self, user: User) -> ImageQuerySet:
        """Those that this person made of sessions."""
        return self.kept().filter(is_customized=True, owner=user)

    def visible_to(self, user: User) -> ImageQuerySet:
        """Superadmins see all. Others see enabled ones that are open to one of their domains, of those that were made
        of sessions their own and what is shared with them; admins those of their domain's people too."""
        return self.kept() if user.role == "superadmin" else self.usable_by(user)

    def usable_by(self, user: User) -> ImageQuerySet:
        """Images the user may start a session from, in some project."""
        enabled = self.kept().filter(is_enabled=True)
        if user.role == "superadmin":
            return enabled
        own = Q(is_customized=False) | Q(owner=user) | self._shared_with(user)
        if user.role == "admin" and user.domain_id:
            own |= Q(owner__domain=user.domain_id)
        projects = Project.objects.filter(memberships__user=user).values("domain")
        return enabled.filter(own, self._open_to(Q(domain=user.domain_id) | Q(domain__in=projects)))

    def shared_with(self, user: User) -> ImageQuerySet:
        """Those that others have made of sessions and share with a project of the user's, with their owners."""
        return self.usable_by(user).filter(self._shared_with(user)).exclude(owner=user).select_related("owner")

    def usable_in(self, domain_id: int) -> ImageQuerySet:
        """Those that sessions of this domain's projects may start from."""
        return self.filter(self._open_to(Q(domain=domain_id)))

    def named(self, name: str) -> ImageQuerySet:
        """Those of this name, other name or reference; the name comes first, the reference last."""
        by_alias = Exists(self.model.aliases.rel.related_model.objects.filter(image=OuterRef("pk"), name=name))
        rank = Case(When(name=name, then=0), When(by_alias, then=1), default=2)
        return self.filter(Q(name=name) | Q(reference=name) | by_alias).order_by(rank)

    def _shared_with(self, user: User) -> Q:
        """Return what is true of own images that are shared with a project to which the user and the owner belong. They
        are looked up once for a statement, not once for each image."""
        shares = self.model.shares.rel.related_model.objects.effective()
        return Q(pk__in=shares.filter(project__memberships__user=user).order_by().values("image"))

    def _open_to(self, domains: Q) -> Q:
        """Return what is true of images that are open to these domains, by their own list and by their registry's."""
        listed = self.model.domains.through.objects.filter(image=OuterRef("pk"))
        of_registry = self.model.registry.field.related_model.domains.through.objects
        allowed = Exists(of_registry.filter(domains, registry=OuterRef("registry")))
        by_list = Q(~Exists(listed)) | Q(Exists(listed.filter(domains)))
        return by_list & (Q(registry=None) | Q(registry__is_global=True) | Q(allowed))


class ImageShareQuerySet(models.QuerySet[Any]):
    """Which own images are shared with which projects."""

    def effective(self) -> ImageShareQuerySet:
        """Those of own images whose owner belongs to the project, which is active."""
        owners = Membership.objects.filter(project=OuterRef("project"), user=OuterRef("image__owner"))
        return self.filter(Exists(owners), project__is_active=True)


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
