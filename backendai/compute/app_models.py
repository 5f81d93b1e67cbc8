"""Apps of sessions that their owners have opened to everybody."""

from __future__ import annotations

from django.conf import settings
from django.db import models
from django.utils import timezone


class PublicApp(models.Model):
    """Whoever reaches the address of this app may use it, until somebody closes it or the session ends.

    ``label`` is the first part of the app's host name, by which it is found when somebody comes.
    """

    session = models.ForeignKey(
        "compute.ComputeSession", on_delete=models.CASCADE, related_name="public_apps", db_index=False
    )
    service = models.CharField(max_length=32)
    label = models.CharField(max_length=63, unique=True, editable=False)
    opened_by = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="+")
    opened_at = models.DateTimeField(default=timezone.now)

    class Meta:
        ordering = ["-opened_at"]
        constraints = [models.UniqueConstraint(fields=["session", "service"], name="public_app_once")]

    def __str__(self) -> str:
        return f"{self.service} of {self.session_id}"
