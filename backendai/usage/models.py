"""What sessions have held over time. Only ``services`` writes here."""

from __future__ import annotations

from django.conf import settings
from django.db import models

from backendai.accounts.models import Domain, Project
from backendai.cluster.models import ResourceGroup
from backendai.compute.models import Kernel
from backendai.usage.querysets import UsageQuerySet


class UsageBucket(models.Model):
    """How much of a slot one user's sessions of one project held in one resource group on one day (UTC)."""

    resource_group = models.ForeignKey(ResourceGroup, on_delete=models.CASCADE, related_name="usage_buckets")
    user = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="usage_buckets")
    project = models.ForeignKey(Project, on_delete=models.CASCADE, related_name="usage_buckets")
    domain = models.ForeignKey(Domain, on_delete=models.CASCADE, related_name="usage_buckets")
    day = models.DateField()
    slot = models.CharField(max_length=64)
    # A whole number of thousandths would not do: 100 GiB for a day exceed 64 bits.
    amount_seconds = models.FloatField(default=0.0, help_text="Amount in the slot's unit, times seconds.")

    outlives_people = True  # who is purged is taken out of their own row, and the sums stay

    objects = UsageQuerySet.as_manager()

    class Meta:
        ordering = ["-day", "slot"]
        indexes = [models.Index(fields=["day"])]
        constraints = [
            models.UniqueConstraint(
                fields=["resource_group", "day", "user", "project", "domain", "slot"], name="usage_bucket_once"
            )
        ]

    def __str__(self) -> str:
        return f"{self.slot} on {self.day}"


class ObservedKernel(models.Model):
    """How far one placement of a kernel has been counted. ``is_closed``: that placement has ended and is counted."""

    kernel = models.OneToOneField(Kernel, on_delete=models.CASCADE, primary_key=True, related_name="observed")
    generation = models.PositiveIntegerField()
    until = models.DateTimeField()
    is_closed = models.BooleanField(default=False)

    class Meta:
        indexes = [models.Index(fields=["is_closed", "until"])]

    def __str__(self) -> str:
        return f"{self.kernel_id} until {self.until}"


class ObservationMark(models.Model):
    """Up to which row the scheduling history was read for placements: one row."""

    id = models.PositiveSmallIntegerField(primary_key=True, default=1)
    record_id = models.PositiveBigIntegerField(default=0)

    def __str__(self) -> str:
        return f"record {self.record_id}"
