"""Selects the folders and storage hosts that a person may see, with the person's rights."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from django.db import models
from django.db.models import Case, CharField, Exists, F, OuterRef, Q, Subquery, Value, When

from backendai.domain.accounts.models import Membership, User
from backendai.domain.storage.status import LIVE, FolderStatus, GrantKind, Rights, Usage

MANAGE = "manage"
Person = User | OuterRef  # a column of the query around a subquery


class StorageHostQuerySet(models.QuerySet[Any]):
    """Storage hosts."""

    def visible_to(self, user: User) -> StorageHostQuerySet:
        """Return all storage hosts for a superadmin, else those where folders can be created."""
        return self if user.role == "superadmin" else self.filter(is_enabled=True)


class FolderQuerySet(models.QuerySet[Any]):
    """Folders."""

    def live(self) -> FolderQuerySet:
        """Return the folders that are not deleted."""
        return self.filter(status__in=sorted(LIVE))

    def mountable(self) -> FolderQuerySet:
        """Return the folders that sessions may mount now."""
        return self.filter(status=FolderStatus.READY).exclude(usage=Usage.HOME)

    def with_rights_of(self, user: User) -> FolderQuerySet:
        """Annotate ``rights``: manage, edit, view or none. An override or accepted invitation beats the default."""
        rules = []
        if user.role == "superadmin":
            rules.append(When(pk__isnull=False, then=Value(MANAGE)))
        elif user.role == "admin" and user.domain_id:
            rules.append(When(Q(user__domain=user.domain_id) | Q(project__domain=user.domain_id), then=Value(MANAGE)))
        return self._with_rights(user, user, rules)

    def visible_to(self, user: User) -> FolderQuerySet:
        """Return the folders to which the user has any rights, annotated with ``rights``. Administrators manage those
        of their domain. Folders that are not ready, such as in the trash, are included only for those who manage them.
        """
        rows = self.live().with_rights_of(user).exclude(rights=Rights.NONE)
        return rows.filter(Q(rights=MANAGE) | Q(status=FolderStatus.READY))

    def offered_to(self, user: User) -> FolderQuerySet:
        """Return the ready folders that the user owns, was granted or has by a project, for lists and the launcher."""
        return self.mountable()._held_by(user, user).with_rights_of(user).exclude(rights=Rights.NONE)

    def offered_to_column(self, column: str) -> FolderQuerySet:
        """Return the folders of ``offered_to`` as a subquery, for the user in a column of the outer query."""
        person, inner = OuterRef(column), OuterRef(OuterRef(column))
        domain = Q(domain=OuterRef("user__domain")) | Q(domain=OuterRef("project__domain"))
        managing = User.objects.filter(Q(role="superadmin") | Q(role="admin") & domain, pk=inner)
        rows = self.mountable()._held_by(person, inner)
        rows = rows._with_rights(person, inner, [When(Exists(managing), then=Value(MANAGE))])
        return rows.exclude(rights=Rights.NONE)

    def _with_rights(self, person: Person, inner: Person, managing: Sequence[When]) -> FolderQuerySet:
        """Annotate ``rights``. ``inner`` is the person as subqueries name them."""
        granted, member = self._granted_to(inner), self._memberships_of(inner)
        rules = [
            When(user=person, then=Value(MANAGE)),
            *managing,
            When(Exists(member.filter(role=Membership.Role.ADMIN)), then=Value(MANAGE)),
            When(Exists(granted), then=Subquery(granted.values("rights")[:1])),
            When(Exists(member), then=F("member_rights")),
        ]
        return self.annotate(rights=Case(*rules, default=Value(Rights.NONE.value), output_field=CharField()))

    def _held_by(self, person: Person, inner: Person) -> FolderQuerySet:
        """Return the folders that the person owns, was granted or has by a project."""
        mine = Q(user=person) | Exists(self._memberships_of(inner)) | Exists(self._granted_to(inner))
        return self.filter(mine)

    def _memberships_of(self, person: Person) -> models.QuerySet[Any]:
        return Membership.objects.filter(project=OuterRef("project"), user=person)

    def _granted_to(self, person: Person) -> FolderGrantQuerySet:
        """Return the grant that counts; an override holds only as long as its user belongs to the project."""
        grants = self.model.grants.rel.related_model.objects.filter(folder=OuterRef("pk"), user=person).counting()
        member = Membership.objects.filter(project=OuterRef("folder__project"), user=OuterRef("user"))
        rows: FolderGrantQuerySet = grants.filter(Q(kind=GrantKind.INVITATION) | Exists(member))
        return rows


class FolderGrantQuerySet(models.QuerySet[Any]):
    """Grants of rights to folders."""

    def counting(self) -> FolderGrantQuerySet:
        """Return the overrides and the accepted invitations."""
        return self.filter(Q(kind=GrantKind.OVERRIDE) | Q(accepted_at__isnull=False))

    def pending_for(self, user: User) -> FolderGrantQuerySet:
        """Return the invitations that the user has neither accepted nor declined."""
        return self.filter(user=user, kind=GrantKind.INVITATION, accepted_at=None, folder__status=FolderStatus.READY)
