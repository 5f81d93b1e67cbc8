"""Folders that sessions mount."""

from __future__ import annotations

from django.db import models
from django.db.models import Q
from django.utils import timezone

from backendai.base.core.messages import Message
from backendai.domain.storage.models import Folder
from backendai.domain.storage.status import Rights


class SessionMount(models.Model):
    """A folder that a session mounts, fixed at the launch. ``role``: the role whose kernels mount it (empty: all
    kernels).

    Until ``released_at`` the folder cannot be moved to the trash. The mount is released when every kernel has ended, or
    when the folder was unmounted from the running session, as its owner lost the rights (``cut_at``).
    """

    session = models.ForeignKey("compute.ComputeSession", on_delete=models.CASCADE, related_name="mounts")
    folder = models.ForeignKey(Folder, null=True, on_delete=models.SET_NULL, related_name="mounts")
    folder_name = models.CharField(max_length=64, help_text=Message("The folder's name at the launch."))
    sub_path = models.CharField(max_length=1024, blank=True)
    target = models.CharField(max_length=255, help_text=Message("The mount path: absolute, inside the kernels."))
    rights = models.CharField(max_length=8, choices=Rights)
    role = models.CharField(
        max_length=16, blank=True, help_text=Message("The role whose kernels mount it; empty: all kernels.")
    )
    is_automatic = models.BooleanField(
        default=False, help_text=Message("Mounted without a request, as the name begins with a dot.")
    )
    created_at = models.DateTimeField(default=timezone.now)
    released_at = models.DateTimeField(null=True, blank=True)
    cut_at = models.DateTimeField(
        null=True, blank=True, help_text=Message("When the folder was unmounted from the running session.")
    )

    class Meta:
        ordering = ["session", "target"]
        constraints = [models.UniqueConstraint(fields=["session", "role", "target"], name="mount_target_once_per_role")]
        indexes = [models.Index(fields=["folder"], condition=Q(released_at=None), name="folder_in_use")]

    def __str__(self) -> str:
        return f"{self.session_id}: {self.folder_name} on {self.target}"
