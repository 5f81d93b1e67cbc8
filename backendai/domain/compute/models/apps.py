"""Apps of sessions that their owners have made public, and settings of apps."""

from __future__ import annotations

from django.conf import settings
from django.db import models
from django.utils import timezone

from backendai.base.core.messages import Message

LONGEST_APP_TITLE = 40


class PublicFor(models.TextChoices):
    """The time for which an app is public; it ends with the session at the latest."""

    HOUR = "1h", Message("1 hour")
    DAY = "1d", Message("1 day")
    SESSION = "session", Message("until the session ends")


class PublicApp(models.Model):
    """A public app: anyone with its address may use it until ``closes_at``, or until it is made private or its session
    ends.

    ``label``: the first part of the app's host name, by which the app proxy finds the app.
    """

    session = models.ForeignKey(
        "compute.ComputeSession", on_delete=models.CASCADE, related_name="public_apps", db_index=False
    )
    service = models.CharField(max_length=32)
    label = models.CharField(max_length=63, unique=True, editable=False)
    opened_by = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="+")
    opened_at = models.DateTimeField(default=timezone.now)
    closes_at = models.DateTimeField(null=True, blank=True, help_text=Message("Empty: when the session ends."))

    class Meta:
        ordering = ["-opened_at"]
        indexes = [models.Index(fields=["closes_at"], name="public_app_by_end")]
        constraints = [models.UniqueConstraint(fields=["session", "service"], name="public_app_once")]

    def __str__(self) -> str:
        return f"{self.service} of {self.session_id}"


class AppSetting(models.Model):
    """The settings of one app of a session: its title in the launcher, and values of arguments that the image lets
    users set."""

    session = models.ForeignKey(
        "compute.ComputeSession", on_delete=models.CASCADE, related_name="app_settings", db_index=False
    )
    service = models.CharField(max_length=32)
    title = models.CharField(max_length=LONGEST_APP_TITLE, blank=True)
    arguments = models.JSONField(default=dict, blank=True)

    class Meta:
        constraints = [models.UniqueConstraint(fields=["session", "service"], name="app_setting_once")]

    def __str__(self) -> str:
        return f"{self.service} of {self.session_id}"
