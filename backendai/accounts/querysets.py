"""Who may see whom."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Any

from django.db import models
from django.db.models import Count, OuterRef, Q, Subquery
from django.db.models.functions import Coalesce

if TYPE_CHECKING:
    from backendai.accounts.models import User


def number_of(rows: models.QuerySet[Any, Any], one: str) -> Coalesce:
    """Return how many of the rows each has that they name as ``one``, for an annotation: each is counted for itself.
    Counted over joins, everything would be multiplied with everything, and shown or not, all would be looked at."""
    counted = rows.filter(**{one: OuterRef("pk")}).order_by().values(one).annotate(number=Count("pk"))
    return Coalesce(Subquery(counted.values("number")), 0)


class UserQuerySet(models.QuerySet[Any]):
    """People."""

    def visible_to(self, user: User) -> UserQuerySet:
        """Everybody for superadmins, the own domain for its admins, else only oneself. Nobody sees who was purged."""
        there = self.filter(purged_at=None)
        if user.role == "superadmin":
            return there
        if user.role == "admin" and user.domain_id:
            return there.filter(domain_id=user.domain_id)
        return there.filter(pk=user.pk)


class DomainQuerySet(models.QuerySet[Any]):
    """Domains."""

    def visible_to(self, user: User) -> DomainQuerySet:
        """Every domain for superadmins, else one's own."""
        return self if user.role == "superadmin" else self.filter(users=user)


class ProjectQuerySet(models.QuerySet[Any]):
    """Projects."""

    def visible_to(self, user: User) -> ProjectQuerySet:
        """Every project for superadmins, else those one is a member of (admins: of their domain)."""
        if user.role == "superadmin":
            return self
        mine = Q(memberships__user=user)
        if user.role == "admin" and user.domain_id:
            mine |= Q(domain_id=user.domain_id)
        return self.filter(mine).distinct()

    def managed_by(self, user: User) -> ProjectQuerySet:
        """Projects whose members the user chooses: their own domain's for admins, those they are a project admin of."""
        if user.role == "superadmin":
            return self
        mine = Q(memberships__user=user, memberships__role="admin")
        if user.role == "admin" and user.domain_id:
            mine |= Q(domain_id=user.domain_id)
        return self.filter(mine).distinct()

    def usable_by(self, user: User) -> ProjectQuerySet:
        """Active projects in which the user may start sessions: those they are a member of."""
        return self.filter(memberships__user=user, is_active=True, domain__is_active=True)


class MembershipQuerySet(models.QuerySet[Any]):
    """Who belongs to which project."""

    def visible_to(self, user: User) -> MembershipQuerySet:
        """One's own, and all of the projects whose members one chooses."""
        if user.role == "superadmin":
            return self
        mine = Q(user=user) | Q(project__in=_managed(user))
        if user.role == "admin" and user.domain_id:
            mine |= Q(project__domain_id=user.domain_id)
        return self.filter(mine)


class InvitationQuerySet(models.QuerySet[Any]):
    """Invitations."""

    def visible_to(self, user: User) -> InvitationQuerySet:
        """Those into projects whose members one chooses."""
        if user.role == "superadmin":
            return self
        mine = Q(project__in=_managed(user))
        if user.role == "admin" and user.domain_id:
            mine |= Q(project__domain_id=user.domain_id)
        return self.filter(mine)

    def pending(self) -> InvitationQuerySet:
        """Neither accepted nor revoked; they may have expired."""
        return self.filter(accepted_at=None, revoked_at=None)

    def in_state(self, state: str, now: datetime) -> InvitationQuerySet:
        """Those of which this has become: open, accepted, expired or revoked."""
        if state == "accepted":
            return self.filter(accepted_at__isnull=False)
        if state == "revoked":
            return self.filter(revoked_at__isnull=False)
        pending = self.pending()
        return pending.filter(expires_at__gt=now) if state == "open" else pending.filter(expires_at__lte=now)


class TokenQuerySet(models.QuerySet[Any]):
    """Bearer tokens."""

    def visible_to(self, user: User) -> TokenQuerySet:
        """One's own only, whatever the role."""
        return self.filter(user=user)


class SshKeyQuerySet(models.QuerySet[Any]):
    """SSH keys."""

    def visible_to(self, user: User) -> SshKeyQuerySet:
        """One's own only, whatever the role."""
        return self.filter(user=user)


class KeyPairQuerySet(models.QuerySet[Any]):
    """Key pairs."""

    def visible_to(self, user: User) -> KeyPairQuerySet:
        """One's own only, whatever the role."""
        return self.filter(user=user)

    def main_first(self) -> KeyPairQuerySet:
        """The active ones; first the one that counts for sessions from the browser: the main one, else the oldest."""
        return self.filter(is_active=True).order_by("-is_main", "created_at")


def _managed(user: User) -> models.QuerySet[Any, Any]:
    """Return the ids of the projects that the user is a project admin of."""
    return user.memberships.filter(role="admin").order_by().values("project_id")


class PolicyQuerySet(models.QuerySet[Any]):
    """Resource policies."""

    def visible_to(self, user: User) -> PolicyQuerySet:
        """Superadmins see them all; others see what holds for them with their limits."""
        return self if user.role == "superadmin" else self.none()

    def with_holders(self) -> PolicyQuerySet:
        """Count who has each: ``number_of_key_pairs``, ``_users``, ``_projects``, ``_domains``, ``_invitations``."""
        kinds = ("key_pairs", "users", "projects", "domains", "invitations")
        return self.annotate(**{f"number_of_{kind}": _number_with_policy(self.model, kind) for kind in kinds})


def _number_with_policy(policies: Any, kind: str) -> Coalesce:
    return number_of(policies._meta.get_field(kind).related_model._default_manager.all(), "policy")
