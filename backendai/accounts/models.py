"""People: who may log in, where they belong, and the keys they use from scripts."""

from __future__ import annotations

import secrets
import uuid
from datetime import datetime
from typing import Any, ClassVar

from django.contrib.auth.base_user import AbstractBaseUser, BaseUserManager
from django.contrib.auth.models import PermissionsMixin
from django.core.exceptions import ValidationError
from django.core.validators import MaxValueValidator, MinValueValidator
from django.db import models
from django.utils import timezone

from backendai.accounts.policy_rules import clean_amounts, wrong_limits
from backendai.accounts.querysets import ProjectQuerySet, TokenQuerySet, UserQuerySet
from backendai.core.errors import UserError


class ResourcePolicy(models.Model):
    """Limits for one holder of sessions: a key pair, a user, a project or a domain. What is empty is unlimited."""

    class Unnamed(models.TextChoices):
        UNLIMITED = "unlimited", "any amount of it"
        LIMITED = "limited", "none of it"

    name = models.CharField(max_length=64, unique=True)
    slots = models.JSONField(default=dict, blank=True, help_text="Most that is held at once, as decimal strings.")
    unnamed_slots = models.CharField(
        max_length=16, choices=Unnamed, default=Unnamed.UNLIMITED, help_text="For slots that are not named above."
    )
    max_sessions = models.PositiveIntegerField(null=True, blank=True, help_text="That hold slots at once.")
    max_pending_sessions = models.PositiveIntegerField(null=True, blank=True)
    max_pending_slots = models.JSONField(default=dict, blank=True, help_text="Most that waits at once.")
    max_priority = models.PositiveSmallIntegerField(null=True, blank=True, validators=[MaxValueValidator(100)])
    max_kernels_per_session = models.PositiveSmallIntegerField(null=True, blank=True)
    max_session_lifetime = models.DurationField(null=True, blank=True)
    created_at = models.DateTimeField(default=timezone.now)

    class Meta:
        ordering = ["name"]
        verbose_name_plural = "resource policies"

    def __str__(self) -> str:
        return self.name

    def save(self, *args: Any, **kwargs: Any) -> None:
        """Write it; raises a ValidationError by field for limits that make no sense."""
        self.full_clean(validate_unique=False, validate_constraints=False)
        super().save(*args, **kwargs)

    def clean(self) -> None:
        """Bring the amounts into their exact form."""
        wrong = wrong_limits(self.max_kernels_per_session, self.max_session_lifetime)
        for field in ("slots", "max_pending_slots"):
            try:
                setattr(self, field, clean_amounts(getattr(self, field), field=field))
            except UserError as error:
                wrong[field] = error.message
        if wrong:
            raise ValidationError(wrong)


def _policy(related_name: str) -> models.ForeignKey[Any, Any]:
    return models.ForeignKey(ResourcePolicy, on_delete=models.PROTECT, null=True, blank=True, related_name=related_name)


def _share_weight() -> models.FloatField[Any, Any]:
    return models.FloatField(
        default=1.0,
        validators=[MinValueValidator(0.01)],
        help_text="Share of the resources that fair strategies aim at.",
    )


class Domain(models.Model):
    """A tenant: an organisation with its own people and projects."""

    name = models.CharField(max_length=64, unique=True)
    is_active = models.BooleanField(default=True)
    policy = _policy("domains")
    share_weight = _share_weight()
    created_at = models.DateTimeField(default=timezone.now)

    class Meta:
        ordering = ["name"]

    def __str__(self) -> str:
        return self.name


class UserManager(BaseUserManager.from_queryset(UserQuerySet)):  # type: ignore[misc]
    """Makes users by e-mail address."""

    def create_user(self, email: str, password: str | None = None, **fields: Any) -> User:
        """Return a new user; the address is stored in lower case, without a password nobody can log in."""
        user = self.model(email=email.strip().lower(), **fields)
        user.set_password(password)
        user.save(using=self._db)
        return user

    def create_superuser(self, email: str, password: str | None = None, **fields: Any) -> User:
        """Return a new superadmin."""
        return self.create_user(email, password, role=User.Role.SUPERADMIN, is_superuser=True, **fields)

    def get_by_natural_key(self, email: str | None) -> User:
        """Return the user with this address, whatever its case."""
        return self.get(email=(email or "").strip().lower())


class User(AbstractBaseUser, PermissionsMixin):
    """A person, known by e-mail address."""

    class Role(models.TextChoices):
        SUPERADMIN = "superadmin", "superadmin"
        ADMIN = "admin", "domain admin"
        USER = "user", "user"

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    email = models.EmailField(unique=True)
    full_name = models.CharField(max_length=128, blank=True)
    role = models.CharField(max_length=16, choices=Role, default=Role.USER)
    domain = models.ForeignKey(Domain, on_delete=models.PROTECT, related_name="users", null=True, blank=True)
    is_active = models.BooleanField(default=True)
    policy = _policy("users")
    share_weight = _share_weight()
    created_at = models.DateTimeField(default=timezone.now)

    objects = UserManager()

    USERNAME_FIELD = "email"
    REQUIRED_FIELDS: ClassVar[list[str]] = []

    class Meta:
        ordering = ["email"]

    def __str__(self) -> str:
        return self.email

    @property
    def is_superadmin(self) -> bool:
        """Sees and steers everything."""
        return self.role == self.Role.SUPERADMIN

    @property
    def is_staff(self) -> bool:
        """May open the Django admin."""
        return self.is_superadmin

    @property
    def display_name(self) -> str:
        """The name to show."""
        return self.full_name or self.email.split("@")[0]


class Project(models.Model):
    """A group of people in one domain who share limits and folders."""

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    domain = models.ForeignKey(Domain, on_delete=models.PROTECT, related_name="projects")
    name = models.CharField(max_length=64)
    is_active = models.BooleanField(default=True)
    members = models.ManyToManyField(User, through="Membership", related_name="projects")
    policy = _policy("projects")
    share_weight = _share_weight()
    created_at = models.DateTimeField(default=timezone.now)

    objects = ProjectQuerySet.as_manager()

    class Meta:
        ordering = ["name"]
        constraints = [models.UniqueConstraint(fields=["domain", "name"], name="project_name_once_per_domain")]

    def __str__(self) -> str:
        return self.name


class Membership(models.Model):
    """A user belongs to a project."""

    user = models.ForeignKey(User, on_delete=models.CASCADE, related_name="memberships")
    project = models.ForeignKey(Project, on_delete=models.CASCADE, related_name="memberships")
    created_at = models.DateTimeField(default=timezone.now)

    class Meta:
        constraints = [models.UniqueConstraint(fields=["user", "project"], name="membership_once")]

    def __str__(self) -> str:
        return f"{self.user} in {self.project}"


def new_access_key() -> str:
    """Return a fresh public name of a key pair."""
    return "AK" + secrets.token_hex(9).upper()


class KeyPair(models.Model):
    """The public name under which a user's sessions and scripts run."""

    access_key = models.CharField(max_length=32, primary_key=True, default=new_access_key)
    user = models.ForeignKey(User, on_delete=models.CASCADE, related_name="key_pairs")
    is_active = models.BooleanField(default=True)
    policy = _policy("key_pairs")
    created_at = models.DateTimeField(default=timezone.now)

    class Meta:
        ordering = ["created_at"]

    def __str__(self) -> str:
        return self.access_key


class AccessToken(models.Model):
    """A bearer token: shown once when made, stored only as a hash."""

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    user = models.ForeignKey(User, on_delete=models.CASCADE, related_name="access_tokens")
    name = models.CharField(max_length=64)
    digest = models.CharField(max_length=64, unique=True)
    hint = models.CharField(max_length=12)
    created_at = models.DateTimeField(default=timezone.now)
    last_used_at = models.DateTimeField(null=True, blank=True)
    expires_at = models.DateTimeField(null=True, blank=True)

    objects = TokenQuerySet.as_manager()

    class Meta:
        ordering = ["-created_at"]

    def __str__(self) -> str:
        return f"{self.name} ({self.hint}…)"

    def is_valid(self, now: datetime) -> bool:
        """Return whether it has not expired, and its owner may still log in."""
        return self.user.is_active and (self.expires_at is None or self.expires_at > now)


class LoginCount(models.Model):
    """How often signing in was tried in vain: for one account from one address, or from one address in all."""

    key = models.CharField(max_length=64, primary_key=True)  # a hash: what people type by mistake may be a password
    attempts = models.PositiveIntegerField(default=0)
    last_at = models.DateTimeField(default=timezone.now, db_index=True)
    blocked_until = models.DateTimeField(null=True, blank=True)

    def __str__(self) -> str:
        return f"{self.key[:12]}: {self.attempts}"
