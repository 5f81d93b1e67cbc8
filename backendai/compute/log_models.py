"""Output of kernels, stored after their containers are removed."""

from __future__ import annotations

from django.db import models
from django.utils import timezone


class KernelLog(models.Model):
    """The end of a kernel's output, kept after its container is gone (gzip)."""

    kernel = models.OneToOneField("compute.Kernel", on_delete=models.CASCADE, related_name="log", primary_key=True)
    content = models.BinaryField()
    size = models.PositiveIntegerField(default=0)
    is_truncated = models.BooleanField(default=False)
    saved_at = models.DateTimeField(default=timezone.now)

    class Meta:
        # Age and bytes of all logs are read without the logs themselves.
        indexes = [models.Index(fields=["saved_at", "kernel", "size"], name="log_by_age")]

    def __str__(self) -> str:
        return f"log of {self.kernel_id}"
