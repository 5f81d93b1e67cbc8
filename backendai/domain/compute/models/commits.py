"""Images saved from running sessions."""

from __future__ import annotations

from django.conf import settings
from django.db import models
from django.utils import timezone

from backendai.base.core.messages import Message
from backendai.domain.activity.models import BackgroundJob
from backendai.domain.catalog.models import Image, Registry
from backendai.domain.cluster.models import Agent
from backendai.domain.cluster.node_jobs import NodeJobRow
from backendai.domain.storage.models import Folder


class ImageCommit(NodeJobRow):
    """A request to save a session as an image, and its result. Its id is the image's id.

    The row is kept after the end of job, session and agent: it records the origin of the image, and shows which
    unfinished images agents can remove.
    """

    class Status(models.TextChoices):
        WAITING = "WAITING", Message("waiting")
        COMMITTING = "COMMITTING", Message("being made")
        PUSHING = "PUSHING", Message("on its way to the registry")
        DONE = "DONE", Message("made")
        FAILED = "FAILED", Message("failed")
        CANCELLED = "CANCELLED", Message("cancelled")

    job = models.OneToOneField(BackgroundJob, null=True, on_delete=models.SET_NULL, related_name="commit")
    owner = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="+")
    session = models.ForeignKey("compute.ComputeSession", null=True, on_delete=models.SET_NULL, related_name="commits")
    session_name = models.CharField(max_length=64)
    kernel = models.ForeignKey("compute.Kernel", null=True, on_delete=models.SET_NULL, related_name="+")
    generation = models.IntegerField()
    agent = models.ForeignKey(Agent, null=True, on_delete=models.SET_NULL, related_name="commits")
    base = models.ForeignKey(Image, null=True, on_delete=models.SET_NULL, related_name="+")
    base_name = models.CharField(max_length=128)
    title = models.CharField(max_length=32)
    reference = models.CharField(max_length=255, unique=True)
    registry = models.ForeignKey(Registry, null=True, on_delete=models.SET_NULL, related_name="+")
    status = models.CharField(max_length=16, choices=Status, default=Status.WAITING)
    created_at = models.DateTimeField(default=timezone.now)

    class Meta:
        ordering = ["-created_at", "-pk"]
        indexes = [
            models.Index(
                fields=["agent"],
                condition=models.Q(status__in=["WAITING", "COMMITTING", "PUSHING"]),
                name="commit_not_over",
            ),
        ]

    def __str__(self) -> str:
        return f"{self.reference}: {self.status}"


class HomeStore(NodeJobRow):
    """An order to store a kernel's home in a folder, as the session stops. Its ``job`` is shared by the session's
    kernels."""

    class Status(models.TextChoices):
        STORING = "STORING", Message("being stored")
        DONE = "DONE", Message("stored")
        GIVEN_UP = "GIVEN_UP", Message("given up")

    job = models.ForeignKey(BackgroundJob, null=True, on_delete=models.SET_NULL, related_name="home_stores")
    session = models.ForeignKey("compute.ComputeSession", on_delete=models.CASCADE, related_name="home_stores")
    kernel = models.ForeignKey("compute.Kernel", on_delete=models.CASCADE, related_name="home_stores")
    generation = models.IntegerField()
    agent = models.ForeignKey(Agent, null=True, on_delete=models.SET_NULL, related_name="+")
    folder = models.ForeignKey(Folder, on_delete=models.CASCADE, related_name="+")
    most_bytes = models.BigIntegerField(null=True, help_text="What the owner's policies leave; empty: unlimited.")
    size_bytes = models.BigIntegerField(null=True)
    status = models.CharField(max_length=16, choices=Status, default=Status.STORING)
    created_at = models.DateTimeField(default=timezone.now)

    class Meta:
        ordering = ["-created_at", "-pk"]
        indexes = [
            models.Index(fields=["agent"], condition=models.Q(status="STORING"), name="home_store_not_over"),
        ]

    def __str__(self) -> str:
        return f"home of {self.kernel_id}: {self.status}"


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


class KernelLog(models.Model):
    """The last output of a kernel (gzip), kept after the kernel's container was removed."""

    kernel = models.OneToOneField("compute.Kernel", on_delete=models.CASCADE, related_name="log", primary_key=True)
    content = models.BinaryField()
    generation = models.PositiveIntegerField(
        default=0, db_default=0, help_text="The start of the kernel that wrote it; 0: unknown."
    )
    size = models.PositiveIntegerField(default=0)
    is_truncated = models.BooleanField(default=False)
    saved_at = models.DateTimeField(default=timezone.now)

    class Meta:
        # Age and size of all logs can be read from this index, without the logs themselves.
        indexes = [models.Index(fields=["saved_at", "kernel", "size"], name="log_by_age")]

    def __str__(self) -> str:
        return f"log of {self.kernel_id}"


class EarlierLog(models.Model):
    """The last output of an earlier start of a kernel (gzip), which failed or was followed by a restart."""

    kernel = models.ForeignKey("compute.Kernel", on_delete=models.CASCADE, related_name="earlier_logs", db_index=False)
    generation = models.PositiveIntegerField()
    content = models.BinaryField()
    size = models.PositiveIntegerField(default=0)
    is_truncated = models.BooleanField(default=False)
    saved_at = models.DateTimeField(default=timezone.now, db_index=True)

    class Meta:
        ordering = ["generation"]
        constraints = [models.UniqueConstraint(fields=["kernel", "generation"], name="earlier_log_once")]

    def __str__(self) -> str:
        return f"log {self.generation} of {self.kernel_id}"
