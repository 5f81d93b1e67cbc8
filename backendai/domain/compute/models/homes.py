"""Home folders of sessions that are kept as folders."""

from __future__ import annotations

from django.conf import settings
from django.db import models
from django.utils import timezone

from backendai.domain.storage.models import Folder


class HomeKeep(models.Model):
    """The copy of a kernel's home folder into a folder. The copy is in progress while the folder has an open
    ``FolderFill``."""

    folder = models.OneToOneField(Folder, on_delete=models.CASCADE, related_name="kept_home")
    user = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="+")
    session = models.ForeignKey("compute.ComputeSession", on_delete=models.CASCADE, related_name="kept_homes")
    kernel = models.ForeignKey("compute.Kernel", on_delete=models.CASCADE, related_name="+")
    generation = models.IntegerField()
    ends_session = models.BooleanField(default=False, help_text="Terminate the session after its home is copied.")
    created_at = models.DateTimeField(default=timezone.now)

    class Meta:
        ordering = ["-created_at", "-pk"]

    def __str__(self) -> str:
        return f"{self.session_id} -> {self.folder_id}"
