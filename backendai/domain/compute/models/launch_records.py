"""Models of the text files sent with a launch, and of a person's recent launches."""

from __future__ import annotations

import uuid
from typing import Any

from django.conf import settings
from django.core.serializers.json import DjangoJSONEncoder
from django.db import models
from django.utils import timezone

from backendai.base.core.messages import Message
from backendai.domain.compute.querysets import LaunchRecordQuerySet
from backendai.domain.compute.spec_document import upgraded


class LaunchRecord(models.Model):
    """A launch by the form, stored so that it can be repeated. Only ``services.recent`` writes it."""

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    owner = models.ForeignKey(
        settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="launch_records", db_index=False
    )
    name = models.CharField(max_length=64)
    parameters = models.JSONField(encoder=DjangoJSONEncoder, help_text="The launch request, without secret values.")
    is_pinned = models.BooleanField(default=False)
    created_at = models.DateTimeField(default=timezone.now)

    objects = LaunchRecordQuerySet.as_manager()

    class Meta:
        ordering = ["-is_pinned", "-created_at", "-id"]
        indexes = [models.Index(fields=["owner", "-is_pinned", "-created_at", "-id"], name="launch_newest")]

    def __str__(self) -> str:
        return self.name

    @property
    def document(self) -> dict[str, Any]:
        """The request as a document of the newest version."""
        return upgraded(self.parameters)


class SessionFile(models.Model):
    """A text file of a launch. Only the person who launched the session can see the file, which is deleted with the
    session."""

    session = models.ForeignKey("compute.ComputeSession", on_delete=models.CASCADE, related_name="files")
    path = models.CharField(max_length=255, help_text=Message("Path, relative to the home folder."))
    content = models.TextField()

    class Meta:
        ordering = ["path"]
        constraints = [models.UniqueConstraint(fields=["session", "path"], name="session_file_once_per_path")]

    def __str__(self) -> str:
        return self.path
