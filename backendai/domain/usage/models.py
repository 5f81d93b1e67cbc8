"""The amounts that sessions held and used over time.

Only ``services``, ``keeping`` and ``thinning`` write these rows.
"""

from __future__ import annotations

from django.conf import settings
from django.db import models

from backendai.base.core.messages import Message
from backendai.domain.accounts.models import Domain, Project
from backendai.domain.cluster.models import ResourceGroup
from backendai.domain.compute.models import Kernel
from backendai.domain.usage.querysets import UsageQuerySet


class UsageBucket(models.Model):
    """The amount of one slot that was held on one day (UTC), by user, project and resource group."""

    resource_group = models.ForeignKey(ResourceGroup, on_delete=models.CASCADE, related_name="usage_buckets")
    user = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="usage_buckets")
    project = models.ForeignKey(Project, on_delete=models.CASCADE, related_name="usage_buckets")
    domain = models.ForeignKey(Domain, on_delete=models.CASCADE, related_name="usage_buckets")
    day = models.DateField()
    slot = models.CharField(max_length=64)
    # A whole number of thousandths would not do: 100 GiB for a day exceed 64 bits.
    amount_seconds = models.FloatField(default=0.0, help_text="Allocated amount in the slot's unit, times seconds.")
    used_seconds = models.FloatField(
        default=0.0,
        db_default=0.0,
        help_text=Message("The part of it that programs used, as far as that was measured."),
    )
    measured_seconds = models.FloatField(
        default=0.0, db_default=0.0, help_text=Message("The part of it that was allocated while use was measured.")
    )

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
    """The time up to which one placement of a kernel has been counted.

    ``is_closed``: the placement has ended and is counted completely.
    """

    kernel = models.OneToOneField(Kernel, on_delete=models.CASCADE, primary_key=True, related_name="observed")
    generation = models.PositiveIntegerField()
    until = models.DateTimeField()
    is_closed = models.BooleanField(default=False)

    class Meta:
        indexes = [models.Index(fields=["is_closed", "until"])]

    def __str__(self) -> str:
        return f"{self.kernel_id} until {self.until}"


class ObservationMark(models.Model):
    """The last row of the scheduling history that was read for placements. There is only one such mark."""

    id = models.PositiveSmallIntegerField(primary_key=True, default=1)
    record_id = models.PositiveBigIntegerField(default=0)

    def __str__(self) -> str:
        return f"record {self.record_id}"


class UsageSample(models.Model):
    """The usage of one kernel in the ``seconds`` that ended ``at``, as measured by its agent.

    None: not measured. ``devices``: by slot, ``util`` (0 to 1, as a share of the allocation) and ``mem`` (bytes); a
    value that the driver does not report is missing.
    """

    # The unique constraint begins with it; it is not checked again, since the writer has just read the kernel.
    kernel = models.ForeignKey(
        Kernel, on_delete=models.CASCADE, related_name="samples", db_index=False, db_constraint=False
    )
    at = models.DateTimeField()
    seconds = models.FloatField()
    cpu = models.FloatField(null=True, help_text=Message("Mean number of used cores in the interval."))
    mem_bytes = models.BigIntegerField(null=True)
    devices = models.JSONField(default=dict)
    net_rx = models.BigIntegerField(null=True, help_text=Message("Bytes received in the interval."))
    net_tx = models.BigIntegerField(null=True, help_text=Message("Bytes sent in the interval."))
    io_read = models.BigIntegerField(null=True, help_text=Message("Bytes read from disks in the interval."))
    io_write = models.BigIntegerField(null=True, help_text=Message("Bytes written to disks in the interval."))
    is_thinned = models.BooleanField(
        default=False, db_default=False, help_text=Message("Combines several samples into one.")
    )

    class Meta:
        ordering = ["at"]
        indexes = [models.Index(fields=["is_thinned", "at"], name="usage_sample_age")]
        constraints = [models.UniqueConstraint(fields=["kernel", "at"], name="usage_sample_once")]

    def __str__(self) -> str:
        return f"{self.kernel_id} at {self.at}"
