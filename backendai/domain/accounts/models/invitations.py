"""Invitations: links that create an account, or add an account to a project."""

from __future__ import annotations

import uuid
from datetime import datetime

from django.conf import settings
from django.db import models
from django.db.models import Q
from django.utils import timezone

from backendai.base.core.messages import Message
from backendai.domain.accounts.models.people import Membership, Project
from backendai.domain.accounts.models.policies import policy_field
from backendai.domain.accounts.querysets import InvitationQuerySet


class Invitation(models.Model):
    """An invitation to join a project. Its link is shown once; only a hash of its secret is stored."""

    class State(models.TextChoices):
        OPEN = "open", Message("open")
        ACCEPTED = "accepted", Message("accepted")
        EXPIRED = "expired", Message("expired")
        REVOKED = "revoked", Message("revoked")

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    email = models.EmailField()
    full_name = models.CharField(max_length=128, blank=True)
    project = models.ForeignKey(Project, on_delete=models.CASCADE, related_name="invitations")
    role = models.CharField(max_length=16, choices=Membership.Role, default=Membership.Role.MEMBER)
    policy = policy_field("invitations")
    digest = models.CharField(max_length=64, unique=True)
    invited_by = models.ForeignKey(
        settings.AUTH_USER_MODEL, null=True, on_delete=models.SET_NULL, related_name="invitations_sent"
    )
    created_at = models.DateTimeField(default=timezone.now)
    expires_at = models.DateTimeField()
    accepted_at = models.DateTimeField(null=True, blank=True)
    revoked_at = models.DateTimeField(null=True, blank=True)

    objects = InvitationQuerySet.as_manager()

    class Meta:
        ordering = ["-created_at"]
        constraints = [
            models.UniqueConstraint(
                fields=["email", "project"],
                condition=Q(accepted_at=None, revoked_at=None),
                name="invitation_once_while_open",
            )
        ]

    def __str__(self) -> str:
        return f"{self.email} to {self.project_id}"

    def state(self, now: datetime) -> Invitation.State:
        """Return whether the invitation is accepted, revoked, expired or open."""
        if self.accepted_at:
            return self.State.ACCEPTED
        if self.revoked_at:
            return self.State.REVOKED
        return self.State.EXPIRED if self.expires_at <= now else self.State.OPEN
