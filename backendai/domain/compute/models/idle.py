"""The last use of sessions, and warnings of idle checkers."""

from __future__ import annotations

import uuid
from datetime import timedelta

from django.db import models

from backendai.base.core.messages import Message
from backendai.domain.activity.message_field import MessageField
from backendai.domain.cluster.models import IdleChecker


class SessionTraffic(models.Model):
    """The last use of a session through its terminal or an app. Without a row no use is recorded; idle time then counts
    from the first check."""

    session = models.OneToOneField(
        "compute.ComputeSession", on_delete=models.CASCADE, primary_key=True, related_name="traffic"
    )
    last_at = models.DateTimeField()

    def __str__(self) -> str:
        return Message("traffic of {session_id}", session_id=self.session_id)


class IdleWarning(models.Model):
    """One idle checker's state for one session: the active warning, the number of extensions, and whether the checker
    ended the session. ``warned_at``: None without a warning.

    After an idle end the row is kept as evidence.
    """

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    # No index of its own: a unique constraint begins with this column.
    session = models.ForeignKey(
        "compute.ComputeSession", on_delete=models.CASCADE, related_name="idle_warnings", db_index=False
    )
    checker = models.ForeignKey(IdleChecker, null=True, on_delete=models.SET_NULL, related_name="warnings")
    checker_name = models.CharField(max_length=64)
    kind = models.CharField(max_length=24)
    sign = models.CharField(
        max_length=16, blank=True, help_text=Message("Fingerprint of the rule that gave the warning.")
    )
    lead = models.DurationField(
        default=timedelta(0), help_text=Message("Time between the warning and the end, as set by the rule.")
    )
    warned_at = models.DateTimeField(null=True, blank=True)
    due_at = models.DateTimeField(null=True, blank=True)
    idle_since = models.DateTimeField(null=True, blank=True)
    measured = models.JSONField(
        default=dict, blank=True, help_text=Message("By slot, the average use in per cent of the allocation.")
    )
    message = MessageField(blank=True)
    extended_until = models.DateTimeField(null=True, blank=True)
    extensions = models.PositiveSmallIntegerField(default=0)
    collected_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        ordering = ["due_at", "pk"]
        constraints = [models.UniqueConstraint(fields=["session", "checker"], name="idle_warning_once_per_checker")]

    def __str__(self) -> str:
        return f"{self.checker_name}: {self.session_id}"
