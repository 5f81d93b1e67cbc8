"""What owners are told of their endpoints, under the bell and by mail."""

from __future__ import annotations

from django.conf import settings
from django.db import models
from django.utils import timezone

from backendai.domain.activity.message_field import MessageField


class EndpointNotice(models.Model):
    """A notification of an endpoint's owner, at most one of each kind."""

    class Kind(models.TextChoices):
        """What happened."""

        UNAVAILABLE = "unavailable", "unavailable"
        BACKING_OFF = "backing-off", "backing off"
        ROLLED_BACK = "rolled-back", "rolled back"
        UNUSED = "unused", "unused"

    endpoint = models.ForeignKey("serving.Endpoint", on_delete=models.CASCADE, related_name="notices", db_index=False)
    owner = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="+")
    kind = models.CharField(max_length=16, choices=Kind)
    message = MessageField(blank=True)
    created_at = models.DateTimeField(default=timezone.now)
    mailed_at = models.DateTimeField(null=True, blank=True)
    seen_at = models.DateTimeField(null=True, blank=True, help_text="When the owner saw it under the bell.")
    cleared_at = models.DateTimeField(null=True, blank=True, help_text="When the owner dismissed it.")

    class Meta:
        ordering = ["-created_at", "-pk"]
        constraints = [
            models.UniqueConstraint(fields=["endpoint", "kind"], name="notice_once_per_endpoint_and_kind"),
        ]

    def __str__(self) -> str:
        return f"{self.kind} {self.endpoint_id}"
