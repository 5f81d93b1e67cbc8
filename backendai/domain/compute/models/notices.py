"""Notifications of sessions' owners: shown as a card, under the bell, or sent by e-mail."""

from __future__ import annotations

from django.conf import settings
from django.db import models
from django.utils import timezone

from backendai.domain.activity.message_field import MessageField
from backendai.domain.activity.notices import NoticeKind


class SessionNotice(models.Model):
    """A notification of a session's owner, at most one of each kind. Its text is made from the session's current
    state."""

    # No indexes of their own: a unique constraint and an index begin with these two columns.
    session = models.ForeignKey(
        "compute.ComputeSession", on_delete=models.CASCADE, related_name="notices", db_index=False
    )
    owner = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="+", db_index=False)
    kind = models.CharField(max_length=16, choices=NoticeKind)
    message = MessageField(blank=True)
    due_at = models.DateTimeField(null=True, blank=True, help_text="When the announced event happens.")
    created_at = models.DateTimeField(default=timezone.now)
    seen_at = models.DateTimeField(null=True, blank=True, help_text="When the owner saw it under the bell.")
    closed_at = models.DateTimeField(null=True, blank=True, help_text="When the owner closed the card.")
    cleared_at = models.DateTimeField(null=True, blank=True, help_text="When the owner dismissed it.")
    mailed_at = models.DateTimeField(null=True, blank=True, help_text="When the mail was sent.")

    class Meta:
        ordering = ["-created_at", "-pk"]
        indexes = [models.Index(fields=["owner", "-id"], name="notice_of_owner")]
        constraints = [models.UniqueConstraint(fields=["session", "kind"], name="notice_once_per_session_and_kind")]

    def __str__(self) -> str:
        return f"{self.kind} {self.session_id}"
