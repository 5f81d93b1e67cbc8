"""Users, domains, projects and memberships."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from typing import Any, ClassVar

from django.contrib.auth.base_user import AbstractBaseUser, BaseUserManager
from django.contrib.auth.models import PermissionsMixin
from django.core.validators import MinValueValidator
from django.db import models
from django.utils import timezone

from backendai.base.core.messages import Message
from backendai.domain.accounts.models.policies import HeldToPolicy, policy_field
from backendai.domain.accounts.querysets import DomainQuerySet, MembershipQuerySet, ProjectQuerySet, UserQuerySet


def _share_weight() -> models.FloatField[Any, Any]:
    return models.FloatField(
        default=1.0,
        validators=[MinValueValidator(0.01)],
        help_text=Message("Share of the resources that fair strategies aim at."),
    )


class Domain(HeldToPolicy, models.Model):
    """The outermost group of users and projects."""

    policy_kind = "domain"

    name = models.CharField(max_length=64, unique=True)
    is_active = models.BooleanField(default=True)
    policy = policy_field("domains")
    share_weight = _share_weight()
    created_at = models.DateTimeField(default=timezone.now)

    objects = DomainQuerySet.as_manager()

    class Meta:
        ordering = ["name"]

    def __str__(self) -> str:
        return self.name


class UserManager(BaseUserManager.from_queryset(UserQuerySet)):  # type: ignore[misc]
    """Creates users by e-mail address."""

    def create_user(self, email: str, password: str | None = None, **fields: Any) -> User:
        """Create a user; the address is stored in lower case. Without a password the user cannot sign in by one."""
        user = self.model(email=email.strip().lower(), **fields)
        user.set_password(password)
        user.save(using=self.db)
        return user

    def create_superuser(self, email: str, password: str | None = None, **fields: Any) -> User:
        """Create a superadmin."""
        return self.create_user(email, password, role=User.Role.SUPERADMIN, is_superuser=True, **fields)

    def get_by_natural_key(self, email: str | None) -> User:
        """Return the user with this address, whatever its case."""
        return self.get(email=(email or "").strip().lower())


class User(HeldToPolicy, AbstractBaseUser, PermissionsMixin):
    """A person, identified by e-mail address."""

    policy_kind = "user"

    class Role(models.TextChoices):
        SUPERADMIN = "superadmin", Message("superadmin")
        ADMIN = "admin", Message("domain admin")
        USER = "user", Message("user")

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    email = models.EmailField(unique=True)
    full_name = models.CharField(max_length=128, blank=True)
    role = models.CharField(max_length=16, choices=Role, default=Role.USER)
    domain = models.ForeignKey(Domain, on_delete=models.PROTECT, related_name="users", null=True, blank=True)
    is_active = models.BooleanField(default=True)
    policy = policy_field("users")
    share_weight = _share_weight()
    language = models.CharField(
        max_length=8,
        blank=True,
        default="",
        db_default="",
        help_text=Message("Of the pages. Empty: what the browser asks for."),
    )
    credentials_version = models.PositiveIntegerField(default=0, db_default=0, editable=False)
    created_at = models.DateTimeField(default=timezone.now)
    purged_at = models.DateTimeField(
        null=True, blank=True, editable=False, help_text="Since when nobody is left of it."
    )

    objects = UserManager()

    USERNAME_FIELD = "email"
    REQUIRED_FIELDS: ClassVar[list[str]] = []

    class Meta:
        ordering = ["email"]

    def __str__(self) -> str:
        return self.email

    def get_session_auth_hash(self) -> str:
        """Return the hash that a login's cookie must match; a new password or version ends the login.

        Version 0 gives Django's own hash.
        """
        return self._of_version(super().get_session_auth_hash())

    def get_session_auth_fallback_hash(self) -> Iterator[str]:
        """Yield the hashes by former secret keys, which a login's cookie may match as well."""
        yield from map(self._of_version, super().get_session_auth_fallback_hash())

    def _of_version(self, plain: str) -> str:
        return f"{plain}.{self.credentials_version}" if self.credentials_version else plain

    @property
    def is_superadmin(self) -> bool:
        """Whether the user may see and change everything."""
        return self.role == self.Role.SUPERADMIN

    @property
    def is_staff(self) -> bool:
        """Whether the user may open the Django admin."""
        return self.is_superadmin

    @property
    def display_name(self) -> str:
        """The full name, or else the part of the address before the ``@``."""
        return self.full_name or self.email.split("@")[0]


class Project(HeldToPolicy, models.Model):
    """A group of people in one domain who share limits and folders."""

    policy_kind = "project"

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    domain = models.ForeignKey(Domain, on_delete=models.PROTECT, related_name="projects")
    name = models.CharField(max_length=64)
    is_active = models.BooleanField(default=True)
    members = models.ManyToManyField(User, through="Membership", related_name="projects")
    policy = policy_field("projects")
    share_weight = _share_weight()
    created_at = models.DateTimeField(default=timezone.now)

    objects = ProjectQuerySet.as_manager()

    class Meta:
        ordering = ["name"]
        constraints = [models.UniqueConstraint(fields=["domain", "name"], name="project_name_once_per_domain")]

    def __str__(self) -> str:
        return self.name


class Membership(models.Model):
    """The membership of a user in a project. Project admins choose its members."""

    class Role(models.TextChoices):
        MEMBER = "member", Message("member")
        ADMIN = "admin", Message("project admin")

    user = models.ForeignKey(User, on_delete=models.CASCADE, related_name="memberships")
    project = models.ForeignKey(Project, on_delete=models.CASCADE, related_name="memberships")
    role = models.CharField(max_length=16, choices=Role, default=Role.MEMBER)
    created_at = models.DateTimeField(default=timezone.now)

    objects = MembershipQuerySet.as_manager()

    class Meta:
        constraints = [models.UniqueConstraint(fields=["user", "project"], name="membership_once")]

    def __str__(self) -> str:
        return f"{self.user} in {self.project}"


class Preference(models.Model):
    """A value that a user has chosen for a page; ``name`` is the page's name for it.

    Without a row the default holds.
    """

    user = models.ForeignKey(User, on_delete=models.CASCADE, related_name="preferences")
    name = models.CharField(max_length=64)
    value = models.JSONField()

    class Meta:
        constraints = [models.UniqueConstraint(fields=["user", "name"], name="preference_once_per_user")]

    def __str__(self) -> str:
        return self.name
