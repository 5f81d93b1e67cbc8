"""Querysets of images and presets, with the rows that a person may use."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from django.db import models
from django.db.models import Case, Exists, OuterRef, Q, When

from backendai.domain.accounts.models import Membership, Project
from backendai.domain.cluster.models import ResourceGroup

if TYPE_CHECKING:
    from backendai.domain.accounts.models import User


class ImageQuerySet(models.QuerySet[Any]):
    def kept(self) -> ImageQuerySet:
        """Return the images that are not deleted. Only the history of sessions shows deleted ones."""
        return self.filter(deleted_at=None)

    def of_processes(self) -> ImageQuerySet:
        """Return the enabled images with a program for agents without containers."""
        return self.kept().filter(is_enabled=True, is_customized=False).exclude(process_reference="")

    def own_of(self, user: User) -> ImageQuerySet:
        """Return the images that this user saved from sessions."""
        return self.kept().filter(is_customized=True, owner=user)

    def visible_to(self, user: User) -> ImageQuerySet:
        """Return all images for superadmins, else those that the user may start sessions from."""
        return self.kept() if user.role == "superadmin" else self.usable_by(user)

    def usable_by(self, user: User) -> ImageQuerySet:
        """Return the images from which the user may start a session in some project."""
        enabled = self.kept().filter(is_enabled=True)
        if user.role == "superadmin":
            return enabled
        own = Q(is_customized=False) | Q(owner=user) | self._shared_with(user)
        if user.role == "admin" and user.domain_id:
            own |= Q(owner__domain=user.domain_id)
        projects = Project.objects.filter(memberships__user=user).values("domain")
        return enabled.filter(own, self._open_to(Q(domain=user.domain_id) | Q(domain__in=projects)))

    def shared_with(self, user: User) -> ImageQuerySet:
        """Return the saved images that others share with a project of the user, with their owners."""
        return self.usable_by(user).filter(self._shared_with(user)).exclude(owner=user).select_related("owner")

    def usable_in(self, domain_id: int) -> ImageQuerySet:
        """Return the images from which sessions in projects of this domain may start."""
        return self.filter(self._open_to(Q(domain=domain_id)))

    def named(self, name: str) -> ImageQuerySet:
        """Return the images with this name, alias or reference: the name first, the reference last."""
        by_alias = Exists(self.model.aliases.rel.related_model.objects.filter(image=OuterRef("pk"), name=name))
        rank = Case(When(name=name, then=0), When(by_alias, then=1), default=2)
        return self.filter(Q(name=name) | Q(reference=name) | by_alias).order_by(rank)

    def _shared_with(self, user: User) -> Q:
        """Return a condition for saved images that are shared with a project of the user.

        The owner must still belong to the project. It runs once for each statement, not once for each image.
        """
        shares = self.model.shares.rel.related_model.objects.effective()
        return Q(pk__in=shares.filter(project__memberships__user=user).order_by().values("image"))

    def _open_to(self, domains: Q) -> Q:
        """Return a condition for images open to these domains.

        Both the image's own list and its registry's must allow it.
        """
        listed = self.model.domains.through.objects.filter(image=OuterRef("pk"))
        of_registry = self.model.registry.field.related_model.domains.through.objects
        allowed = Exists(of_registry.filter(domains, registry=OuterRef("registry")))
        by_list = Q(~Exists(listed)) | Q(Exists(listed.filter(domains)))
        return by_list & (Q(registry=None) | Q(registry__is_global=True) | Q(allowed))


class ImageShareQuerySet(models.QuerySet[Any]):
    def effective(self) -> ImageShareQuerySet:
        """Return the shares with an active project to which the image's owner belongs."""
        owners = Membership.objects.filter(project=OuterRef("project"), user=OuterRef("image__owner"))
        return self.filter(Exists(owners), project__is_active=True)


class PresetQuerySet(models.QuerySet[Any]):
    def visible_to(self, user: User) -> PresetQuerySet:
        """Return the presets without a group, or of a group open to the user."""
        if user.role == "superadmin":
            return self
        groups = ResourceGroup.objects.visible_to(user).order_by()
        return self.filter(Q(resource_group=None) | Q(resource_group__in=groups))

    def in_group(self, group: ResourceGroup) -> PresetQuerySet:
        """Return the presets of this group, and those for all groups."""
        return self.filter(Q(resource_group=None) | Q(resource_group=group))
