"""Which folders and storage hosts a person may see, and which rights they have to each."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from django.db import models
from django.db.models import Case, CharField, Exists, F, OuterRef, Q, Subquery, Value, When

from backendai.accounts.models import Membership
from backendai.storage.status import LIVE, FolderStatus, GrantKind, Rights

if TYPE_CHECKING:
    from backendai.accounts.models import User

MANAGE = "manage"


class StorageHostQuerySet(models.QuerySet[Any]):
    """Storage hosts."""

    def visible_to(self, user: User) -> StorageHostQuerySet:
        """All for superadmins, else those where folders can be created."""
        return self if user.role == "superadmin" else self.filter(is_enabled=True)


class FolderQuerySet(models.QuerySet[Any]):
    """Folders."""

    def live(self) -> FolderQuerySet:
        """Not deleted."""
        return self.filter(status__in=sorted(LIVE))

    def mountable(self) -> FolderQuerySet:
        """Those that sessions may mount now."""
        return self.filter(status=FolderStatus.READY)

    def with_rights_of(self, user: User) -> FolderQuerySet:
        """Annotate ``rights``: manage, edit, view or none. An override or accepted invitation beats the default."""
        granted, member = self._granted_to(user), self._memberships_of(user)
        rules = [When(user=user, then=Value(MANAGE))]
        if user.role == "superadmin":
            rules.append(When(pk__isnull=False, then=Value(MANAGE)))
        elif user.role == "admin" and user.domain_id:
            rules.append(When(Q(user__domain=user.domain_id) | Q(project__domain=user.domain_id), then=Value(MANAGE)))
        rules += [
            When(Exists(member.filter(role=Membership.Role.ADMIN)), then=Value(MANAGE)),
            When(Exists(granted), then=Subquery(granted.values("rights")[:1])),
            When(Exists(member), then=F("member_rights")),
        ]
        return self.annotate(rights=Case(*rules, default=Value(Rights.NONE.value), output_field=CharField()))

    def visible_to(self, user: User) -> FolderQuerySet:
        """Folders to which the user has any rights, with ``rights``; administrators manage those of their domain. Those
        that are not ready, such as in the trash, are there for anyone who manages them."""
        rows = self.live().with_rights_of(user).exclude(rights=Rights.NONE)
        return rows.filter(Q(rights=MANAGE) | Q(status=FolderStatus.READY))

    def offered_to(self, user: User) -> FolderQuerySet:
        """Ready folders that the user owns, was granted or has by a project: what lists and the launcher show."""
        mine = Q(user=user) | Exists(self._memberships_of(user)) | Exists(self._granted_to(user))
        return self.mountable().filter(mine).with_rights_of(user).exclude(rights=Rights.NONE)

    def _memberships_of(self, user: User) -> models.QuerySet[Any]:
        return Membership.objects.filter(project=OuterRef("project"), user=user)

    def _granted_to(self, user: User) -> FolderGrantQuerySet:
        """Return the grant that counts; an override holds only as long as its user belongs to the project."""
        grants = self.model.grants.rel.related_model.objects.filter(folder=OuterRef("pk"), user=user).counting()
        member = Membership.objects.filter(project=OuterRef("folder__project"), user=user)
        rows: FolderGrantQuerySet = grants.filter(Q(kind=GrantKind.INVITATION) | Exists(member))
        return rows


class FolderGrantQuerySet(models.QuerySet[Any]):
    """Grants of rights to folders."""

    def counting(self) -> FolderGrantQuerySet:
        """Overrides, and invitations that were accepted."""
        return self.filter(Q(kind=GrantKind.OVERRIDE) | Q(accepted_at__isnull=False))

    def pending_for(self, user: User) -> FolderGrantQuerySet:
        """Invitations that the user has neither accepted nor declined."""
        return self.filter(user=user, kind=GrantKind.INVITATION, accepted_at=None, folder__status=FolderStatus.READY)
