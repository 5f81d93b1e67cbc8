"""A session's own SSH key."""

from __future__ import annotations

import uuid

from django.db import models
from django.utils import timezone


class SessionSshKey(models.Model):
    """An SSH key pair that gives access to one session. The private key is derived from site, session and version at
    each download. Only the fingerprint is stored."""

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    session = models.OneToOneField("compute.ComputeSession", on_delete=models.CASCADE, related_name="ssh_key")
    version = models.PositiveIntegerField(default=1)
    fingerprint = models.CharField(max_length=64, unique=True)
    created_at = models.DateTimeField(default=timezone.now)

    def __str__(self) -> str:
        return f"{self.fingerprint} of {self.session_id}"
