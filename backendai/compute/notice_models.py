"""What the owner of a session is told about it: in a card on the page, under the bell, by e-mail."""

from __future__ import annotations

from typing import Any

from django.conf import settings
from django.db import models
from django.utils import timezone

from backendai.activity.message_field import MessageField
from backendai.activity.notices import NoticeKind


class NoticeQuerySet(models.QuerySet[Any]):
    """Notices of sessions."""

    def in_bell_of(self, user: Any) -> NoticeQuerySet:
        """One's own that one has not put away, whatever one's role: nobody reads another person's notices."""
        return self.filter(owner=user, cleared_at=None)

    def unseen(self) -> NoticeQuerySet:
        """Those that nobody has looked at."""
        return self.filter(seen_at=None)


class SessionNotice(models.Model):
    """One thing that a session's owner is told, at most once of each kind. What it says now, such as its status and
    the reason of its end, is read from the session."""

    # A unique constraint and an index begin with these two: they need no index of their own.
    session = models.ForeignKey(
        "compute.ComputeSession", on_delete=models.CASCADE, related_name="notices", db_index=False
    )
    owner = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="+", db_index=False)
    kind = models.CharField(max_length=16, choices=NoticeKind)
    message = MessageField(blank=True)
    due_at = models.DateTimeField(null=True, blank=True, help_text="When what it warns of happens.")
    created_at = models.DateTimeField(default=timezone.now)
    seen_at = models.DateTimeField(null=True, blank=True, help_text="When its reader saw it under the bell.")
    closed_at = models.DateTimeField(null=True, blank=True, help_text="When its reader closed the card.")
    cleared_at = models.DateTimeField(null=True, blank=True, help_text="When its reader put it away.")
    mailed_at = models.DateTimeField(null=True, blank=True, help_text="When it was handed to the mail server.")

    objects = NoticeQuerySet.as_manager()

    class Meta:
        ordering = ["-created_at", "-pk"]
        indexes = [models.Index(fields=["owner", "-id"], name="notice_of_owner")]
        constraints = [models.UniqueConstraint(fields=["session", "kind"], name="notice_once_per_session_and_kind")]

    def __str__(self) -> str:
        return f"{self.kind} {self.session_id}"
