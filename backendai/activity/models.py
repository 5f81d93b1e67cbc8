"""What people and the platform did (audit), and work that goes on in the background, with its progress."""

from __future__ import annotations

import uuid

from django.conf import settings
from django.db import models
from django.utils import timezone


class AuditEntry(models.Model):
    """Somebody did something to something. Written in the transaction of the deed, never changed."""

    at = models.DateTimeField(default=timezone.now, db_index=True)
    actor = models.ForeignKey(settings.AUTH_USER_MODEL, null=True, on_delete=models.SET_NULL, related_name="+")
    action = models.CharField(max_length=64)
    target_type = models.CharField(max_length=32)
    target_id = models.CharField(max_length=64)
    details = models.JSONField(default=dict)

    class Meta:
        ordering = ["-at", "-id"]
        verbose_name_plural = "audit entries"

    def __str__(self) -> str:
        return f"{self.action} {self.target_type} {self.target_id}"


class BackgroundJob(models.Model):
    """Long work with progress: the build of an image, later a pull, a commit. ``subject`` says what it is about."""

    class Status(models.TextChoices):
        RUNNING = "RUNNING", "running"
        DONE = "DONE", "done"
        FAILED = "FAILED", "failed"

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    kind = models.CharField(max_length=32)
    subject = models.CharField(max_length=255)
    status = models.CharField(max_length=16, choices=Status, default=Status.RUNNING)
    progress = models.FloatField(null=True)
    message = models.CharField(max_length=500, blank=True)
    fix = models.CharField(max_length=500, blank=True)
    created_at = models.DateTimeField(default=timezone.now)
    updated_at = models.DateTimeField(auto_now=True)

    class Meta:
        ordering = ["-created_at"]
        indexes = [models.Index(fields=["kind", "subject", "-created_at"])]

    def __str__(self) -> str:
        return f"{self.kind} {self.subject}: {self.status}"
