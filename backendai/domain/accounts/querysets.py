"""Querysets of people, projects and credentials, with the rows that a user may see."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Any

from django.db import models
from django.db.models import Count, OuterRef, Q, Subquery
from django.db.models.functions import Coalesce

if TYPE_CHECKING:
    from backendai.domain.accounts.models import User


def number_of(rows: models.QuerySet[Any, Any], one: str) -> Coalesce:
    """Return an annotation that counts the rows whose field ``one`` names the row.

    A subquery counts each kind alone; joins would multiply the counts.
    """
    counted = rows.filter(**{one: OuterRef("pk")}).order_by().values(one).annotate(number=Count("pk"))
    return Coalesce(Subquery(counted.values("number")), 0)


class UserQuerySet(models.QuerySet[Any]):
    def visible_to(self, user: User) -> UserQuerySet:
        """Return everybody for superadmins, the domain's people for its admins, else only the user.

        Leaves out purged accounts.
        """
        there = self.filter(purged_at=None)
        if user.role == "superadmin":
            return there
        if user.role == "admin" and user.domain_id:
            return there.filter(domain_id=user.domain_id)
        return there.filter(pk=user.pk)


class DomainQuerySet(models.QuerySet[Any]):
    def visible_to(self, user: User) -> DomainQuerySet:
        """Return every domain for superadmins, else the user's own."""
        return self if user.role == "superadmin" else self.filter(users=user)


class ProjectQuerySet(models.QuerySet[Any]):
    def visible_to(self, user: User) -> ProjectQuerySet:
        """Return every project for superadmins, else the user's own; for domain admins also those of their domain."""
        if user.role == "superadmin":
            return self
        mine = Q(memberships__user=user)
        if user.role == "admin" and user.domain_id:
            mine |= Q(domain_id=user.domain_id)
        return self.filter(mine).distinct()

    def managed_by(self, user: User) -> ProjectQuerySet:
        """Return the projects whose members the user may choose.

        Superadmins: all; domain admins: those of their domain; project admins: their own.
        """
        if user.role == "superadmin":
            return self
        mine = Q(memberships__user=user, memberships__role="admin")
        if user.role == "admin" and user.domain_id:
            mine |= Q(domain_id=user.domain_id)
        return self.filter(mine).distinct()

    def usable_by(self, user: User) -> ProjectQuerySet:
        """Return the active projects in which the user is a member, so may start sessions."""
        return self.filter(memberships__user=user, is_active=True, domain__is_active=True)


class MembershipQuerySet(models.QuerySet[Any]):
    def visible_to(self, user: User) -> MembershipQuerySet:
        """Return the user's own memberships, and all those of the projects whose members the user chooses."""
        if user.role == "superadmin":
            return self
        mine = Q(user=user) | Q(project__in=_managed(user))
        if user.role == "admin" and user.domain_id:
            mine |= Q(project__domain_id=user.domain_id)
        return self.filter(mine)


class InvitationQuerySet(models.QuerySet[Any]):
    def visible_to(self, user: User) -> InvitationQuerySet:
        """Return the invitations to the projects whose members the user chooses."""
        if user.role == "superadmin":
            return self
        mine = Q(project__in=_managed(user))
        if user.role == "admin" and user.domain_id:
            mine |= Q(project__domain_id=user.domain_id)
        return self.filter(mine)

    def pending(self) -> InvitationQuerySet:
        """Return the invitations that are neither accepted nor revoked; they may have expired."""
        return self.filter(accepted_at=None, revoked_at=None)

    def in_state(self, state: str, now: datetime) -> InvitationQuerySet:
        """Return the invitations in this state: open, accepted, expired or revoked."""
        if state == "accepted":
            return self.filter(accepted_at__isnull=False)
        if state == "revoked":
            return self.filter(revoked_at__isnull=False)
        pending = self.pending()
        return pending.filter(expires_at__gt=now) if state == "open" else pending.filter(expires_at__lte=now)


class TokenQuerySet(models.QuerySet[Any]):
    def visible_to(self, user: User) -> TokenQuerySet:
        """Return only the user's own tokens, for every role."""
        return self.filter(user=user)


class SshKeyQuerySet(models.QuerySet[Any]):
    def visible_to(self, user: User) -> SshKeyQuerySet:
        """Return only the user's own keys, for every role."""
        return self.filter(user=user)


class KeyPairQuerySet(models.QuerySet[Any]):
    def visible_to(self, user: User) -> KeyPairQuerySet:
        """Return only the user's own key pairs, for every role."""
        return self.filter(user=user)

    def main_first(self) -> KeyPairQuerySet:
        """Return the active key pairs: the main one first, then the oldest.

        The first is used for sessions from the browser.
        """
        return self.filter(is_active=True).order_by("-is_main", "created_at")


def _managed(user: User) -> models.QuerySet[Any, Any]:
    """Return the ids of the projects that the user is a project admin of."""
    return user.memberships.filter(role="admin").order_by().values("project_id")


class PolicyQuerySet(models.QuerySet[Any]):
    def visible_to(self, user: User) -> PolicyQuerySet:
        """Return all policies for superadmins, none for others.

        Others see the policies that hold for them with their limits.
        """
        return self if user.role == "superadmin" else self.none()

    def with_holders(self) -> PolicyQuerySet:
        """Annotate the number of holders of each kind:

        ``number_of_key_pairs``, ``_users``, ``_projects``, ``_domains``, ``_invitations``.
        """
        kinds = ("key_pairs", "users", "projects", "domains", "invitations")
        return self.annotate(**{f"number_of_{kind}": _number_with_policy(self.model, kind) for kind in kinds})


def _number_with_policy(policies: Any, kind: str) -> Coalesce:
    return number_of(policies._meta.get_field(kind).related_model._default_manager.all(), "policy")
