"""Output of kernels, stored after their containers are removed."""

from __future__ import annotations

from django.db import models
from django.utils import timezone


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
