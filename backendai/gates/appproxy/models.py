"""Stores the grants with which browsers open apps and the files of folders."""

from __future__ import annotations

import uuid

from django.conf import settings
from django.db import models
from django.utils import timezone

from backendai.base.core.messages import Message
from backendai.domain.compute.models import Kernel
from backendai.domain.storage.models import Folder


class AppGrant(models.Model):
    """A person's access to one app of one generation of a kernel. It holds while the person is signed in and may see
    the session.

    ``entry`` is the id of the one-time code; being unique, it makes each code valid once. Only the cookie's digest is
    stored.
    """

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    entry = models.UUIDField(unique=True, editable=False)
    digest = models.CharField(max_length=64, unique=True, editable=False)
    user = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="app_grants")
    kernel = models.ForeignKey(Kernel, on_delete=models.CASCADE, related_name="app_grants")
    generation = models.PositiveIntegerField()
    service = models.CharField(max_length=32)
    port = models.PositiveIntegerField()
    host = models.CharField(max_length=255)
    login = models.CharField(max_length=64, blank=True, editable=False)
    token = models.CharField(max_length=64, blank=True, editable=False)
    key_pair = models.CharField(max_length=32, blank=True, default="", editable=False)
    created_at = models.DateTimeField(default=timezone.now)
    expires_at = models.DateTimeField(db_index=True)

    class Meta:
        ordering = ["-created_at"]

    def __str__(self) -> str:
        return f"{self.service} for {self.user_id}"


class FilesGrant(models.Model):
    """A person's access to the files of one folder. It holds while the person is signed in and has rights to the
    folder.

    Each code is valid once, and only the digest of the browser's secret is stored.
    """

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    entry = models.UUIDField(unique=True, editable=False)
    digest = models.CharField(max_length=64, unique=True, editable=False)
    user = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="files_grants")
    folder = models.ForeignKey(Folder, on_delete=models.CASCADE, related_name="files_grants")
    host = models.CharField(max_length=255)
    portal = models.CharField(
        max_length=255, blank=True, help_text=Message("The host of the portal whose pages may use it.")
    )
    login = models.CharField(max_length=64, blank=True, editable=False)
    token = models.CharField(max_length=64, blank=True, editable=False)
    key_pair = models.CharField(max_length=32, blank=True, default="", editable=False)
    created_at = models.DateTimeField(default=timezone.now)
    expires_at = models.DateTimeField(db_index=True)

    class Meta:
        ordering = ["-created_at"]
        indexes = [models.Index(fields=["host", "expires_at"], name="files_grants_of_host")]

    def __str__(self) -> str:
        return f"{self.folder_id} for {self.user_id}"
