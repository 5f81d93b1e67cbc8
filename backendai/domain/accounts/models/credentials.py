"""Access tokens, key pairs, logins, and the counters of failed sign-ins."""

from __future__ import annotations

import secrets
import uuid
from collections.abc import Collection
from datetime import datetime

from django.db import models
from django.utils import timezone

from backendai.base.core.messages import Message
from backendai.domain.accounts.models.people import User
from backendai.domain.accounts.models.policies import HeldToPolicy, policy_field
from backendai.domain.accounts.querysets import KeyPairQuerySet, TokenQuerySet
from backendai.domain.accounts.scopes import all_scopes

USUAL_RATE = 10_000

# What comes first is said by others as well: Edge calls itself Chrome, Chrome calls itself Safari, and so on.
_PROGRAMS = (("Edg/", "Edge"), ("OPR/", "Opera"), ("Firefox/", "Firefox"), ("Chrome/", "Chrome"), ("Safari/", "Safari"))
_SYSTEMS = (
    ("Android", "Android"), ("iPhone", "iPhone"), ("iPad", "iPad"), ("Windows", "Windows"), ("Mac OS", "macOS"),
    ("CrOS", "ChromeOS"), ("Linux", "Linux"),
)  # fmt: skip


def new_access_key() -> str:
    """Return a random access key for a new key pair."""
    return "AK" + secrets.token_hex(9).upper()


class KeyPair(HeldToPolicy, models.Model):
    """An access key under which a user's sessions run, and the secret with which scripts sign requests."""

    policy_kind = "key-pair"

    access_key = models.CharField(max_length=32, primary_key=True, default=new_access_key)
    user = models.ForeignKey(User, on_delete=models.CASCADE, related_name="key_pairs")
    name = models.CharField(max_length=64, blank=True)
    # Encrypted, since checking a signature needs it whole; empty: none was made yet, so nothing can be signed with it.
    secret = models.TextField(blank=True, editable=False)
    is_active = models.BooleanField(default=True)
    is_main = models.BooleanField(default=False, help_text=Message("Sessions launched in the browser count for it."))
    policy = policy_field("key_pairs")
    rate_limit = models.PositiveIntegerField(
        default=USUAL_RATE, help_text=Message("Signed requests in 15 minutes; 0: as many as they like.")
    )
    created_at = models.DateTimeField(default=timezone.now)
    last_used_at = models.DateTimeField(null=True, blank=True)

    objects = KeyPairQuerySet.as_manager()

    class Meta:
        ordering = ["created_at"]
        constraints = [
            models.UniqueConstraint(fields=["user"], condition=models.Q(is_main=True), name="one_main_key_pair")
        ]

    def __str__(self) -> str:
        return self.access_key


class SeenSignature(models.Model):
    """A signature that was used once and is refused afterwards.

    It stays in the database until the time of its request is too old. A cache could be emptied and would accept it
    again.
    """

    signature = models.CharField(max_length=64, primary_key=True)
    expires_at = models.DateTimeField(db_index=True)

    def __str__(self) -> str:
        return f"{self.signature[:12]}…"


class StoredAnswer(models.Model):
    """The answer to a request that came with a key of the caller. Without a status it is in progress."""

    user = models.ForeignKey(User, on_delete=models.CASCADE, related_name="+", db_index=False)
    digest = models.CharField(max_length=64)  # of path and key
    body_digest = models.CharField(max_length=64)
    status = models.PositiveSmallIntegerField(null=True)
    sealed = models.TextField(blank=True, editable=False)
    asked_at = models.DateTimeField(db_index=True)

    class Meta:
        constraints = [models.UniqueConstraint(fields=["user", "digest"], name="answer_once_per_key")]

    def __str__(self) -> str:
        return f"{self.digest[:12]}: {self.status}"


class AccessToken(models.Model):
    """A bearer token. Its text is shown once; only its hash is stored."""

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    user = models.ForeignKey(User, on_delete=models.CASCADE, related_name="access_tokens")
    name = models.CharField(max_length=64)
    digest = models.CharField(max_length=64, unique=True)
    hint = models.CharField(max_length=12)
    scopes = models.JSONField(default=all_scopes, blank=True)
    created_at = models.DateTimeField(default=timezone.now)
    last_used_at = models.DateTimeField(null=True, blank=True)
    expires_at = models.DateTimeField(null=True, blank=True)

    objects = TokenQuerySet.as_manager()

    class Meta:
        ordering = ["-created_at"]

    def __str__(self) -> str:
        return f"{self.name} ({self.hint}…)"

    def allows(self, scopes: Collection[str]) -> bool:
        """Return whether the token has all these scopes."""
        return set(scopes) <= set(self.scopes)

    def is_valid(self, now: datetime) -> bool:
        """Return whether the token has not expired and its user is active."""
        return self.user.is_active and (self.expires_at is None or self.expires_at > now)


class DeviceRequest(models.Model):
    """A computer that asks for an access token (RFC 8628). Of its own code only the hash is stored."""

    class State(models.TextChoices):
        PENDING = "pending"
        ALLOWED = "allowed"
        REFUSED = "refused"

    digest = models.CharField(max_length=64, unique=True)
    user_code = models.CharField(max_length=9, unique=True)
    client_name = models.CharField(max_length=100)
    address = models.CharField(max_length=45)
    network = models.CharField(max_length=49, db_index=True)  # by which open requests are counted
    scopes = models.JSONField(default=all_scopes)
    state = models.CharField(max_length=8, choices=State.choices, default=State.PENDING)
    user = models.ForeignKey(User, null=True, on_delete=models.CASCADE, related_name="device_requests")
    days = models.PositiveSmallIntegerField(default=0)  # for which the token will be valid
    created_at = models.DateTimeField(default=timezone.now)
    expires_at = models.DateTimeField(db_index=True)
    asked_at = models.DateTimeField(null=True)

    def __str__(self) -> str:
        return f"{self.client_name} from {self.address}: {self.state}"


class Login(models.Model):
    """A browser in which a user is signed in. It ends with the Django session whose key it has."""

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

    @property
    def device(self) -> str:
        """The browser and system in words: ``Firefox on Linux``. Falls back to the browser's own description."""
        program = next((name for mark, name in _PROGRAMS if mark in self.browser), "")
        system = next((name for mark, name in _SYSTEMS if mark in self.browser), "")
        return " on ".join(part for part in (program, system) if part) or self.browser or "unknown"


class LoginCount(models.Model):
    """The number of failed sign-ins of one counter.

    A counter covers one account from one address, one address, or one account from all addresses.
    """

    key = models.CharField(max_length=64, primary_key=True)  # a hash: what people type by mistake may be a password
    attempts = models.PositiveIntegerField(default=0)
    last_at = models.DateTimeField(default=timezone.now, db_index=True)
    blocked_until = models.DateTimeField(null=True, blank=True)

    def __str__(self) -> str:
        return f"{self.key[:12]}: {self.attempts}"
