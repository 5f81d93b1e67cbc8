"""The keys people use from scripts, and how often signing in failed."""

from __future__ import annotations

import secrets
import uuid
from datetime import datetime

from django.db import models
from django.utils import timezone

from backendai.accounts.models.people import User
from backendai.accounts.models.policies import HeldToPolicy, policy_field
from backendai.accounts.querysets import TokenQuerySet


def new_access_key() -> str:
    """Return a fresh public name of a key pair."""
    return "AK" + secrets.token_hex(9).upper()


class KeyPair(HeldToPolicy, models.Model):
    """The public name under which a user's sessions and scripts run."""

    policy_kind = "key-pair"

    access_key = models.CharField(max_length=32, primary_key=True, default=new_access_key)
    user = models.ForeignKey(User, on_delete=models.CASCADE, related_name="key_pairs")
    is_active = models.BooleanField(default=True)
    policy = policy_field("key_pairs")
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


class Login(models.Model):
    """One browser in which somebody is signed in. It goes with the login's session, of which it knows the key."""

    user = models.ForeignKey(User, on_delete=models.CASCADE, related_name="logins")
    session_key = models.CharField(max_length=40, unique=True, editable=False)
    method = models.CharField(max_length=32)
    address = models.CharField(max_length=45, blank=True)
    browser = models.CharField(max_length=200, blank=True)
    created_at = models.DateTimeField(default=timezone.now)

    class Meta:
        ordering = ["-created_at"]

    def __str__(self) -> str:
        return f"{self.user_id} from {self.address}"


class LoginCount(models.Model):
    """How often signing in was tried in vain: for one account from one address, or from one address in all."""

    key = models.CharField(max_length=64, primary_key=True)  # a hash: what people type by mistake may be a password
    attempts = models.PositiveIntegerField(default=0)
    last_at = models.DateTimeField(default=timezone.now, db_index=True)
    blocked_until = models.DateTimeField(null=True, blank=True)

    def __str__(self) -> str:
        return f"{self.key[:12]}: {self.attempts}"
