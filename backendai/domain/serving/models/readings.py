"""What app proxies measure of endpoints, and what was decided by it."""

from __future__ import annotations

from django.db import models
from django.utils import timezone

from backendai.domain.activity.message_field import MessageField


class ServingProxy(models.Model):
    """An app proxy that serves endpoints. A new ``boot`` counts from zero."""

    name = models.CharField(max_length=128, primary_key=True)
    boot = models.CharField(max_length=32)
    seen_at = models.DateTimeField()
    left_at = models.DateTimeField(null=True, blank=True, help_text="When it reported that it stops.")

    class Meta:
        ordering = ["name"]

    def __str__(self) -> str:
        return self.name


class ProxyReading(models.Model):
    """What one proxy has counted of an endpoint since its boot, up to ``uptime`` seconds after it: counters only grow,
    so a lost reading costs resolution and nothing else. ``open``, ``queued`` and ``held`` are of that moment."""

    proxy = models.CharField(max_length=128)
    boot = models.CharField(max_length=32)
    endpoint = models.ForeignKey("serving.Endpoint", on_delete=models.CASCADE, related_name="readings", db_index=False)
    at = models.DateTimeField()
    uptime = models.FloatField()
    book_version = models.PositiveBigIntegerField(default=0)
    requests = models.PositiveBigIntegerField(default=0)
    completions = models.PositiveBigIntegerField(default=0)
    errors = models.PositiveBigIntegerField(default=0)
    refused = models.PositiveBigIntegerField(default=0)
    busy_seconds = models.FloatField(default=0.0)
    queued_seconds = models.FloatField(default=0.0)
    open = models.PositiveIntegerField(default=0)
    queued = models.PositiveIntegerField(default=0)
    held = models.PositiveIntegerField(default=0)
    histogram = models.JSONField(default=list, help_text="Number of answers by total time; bounds: see ``measures``.")

    class Meta:
        ordering = ["-at"]
        indexes = [models.Index(fields=["endpoint", "at"]), models.Index(fields=["at"])]

    def __str__(self) -> str:
        return f"{self.proxy} {self.endpoint_id}"


class ReplicaSight(models.Model):
    """What one proxy knows of one replica now."""

    proxy = models.CharField(max_length=128)
    boot = models.CharField(max_length=32)
    replica = models.ForeignKey("serving.Replica", on_delete=models.CASCADE, related_name="sights", db_index=False)
    at = models.DateTimeField()
    is_answering = models.BooleanField(default=False)
    message = models.CharField(max_length=300, blank=True, help_text="Result of the last probe.")
    open = models.PositiveIntegerField(default=0)
    requests = models.PositiveBigIntegerField(default=0)
    errors = models.PositiveBigIntegerField(default=0)

    class Meta:
        ordering = ["pk"]
        constraints = [models.UniqueConstraint(fields=["replica", "proxy"], name="sight_once_per_replica_and_proxy")]

    def __str__(self) -> str:
        return f"{self.proxy} {self.replica_id}"


class ScalingRecord(models.Model):
    """One decision about an endpoint, with its numbers. The same again counts ``attempts`` up."""

    endpoint = models.ForeignKey("serving.Endpoint", on_delete=models.CASCADE, related_name="records", db_index=False)
    code = models.CharField(max_length=64)
    message = MessageField()
    data = models.JSONField(default=dict, blank=True)
    before = models.PositiveSmallIntegerField(default=0)
    after = models.PositiveSmallIntegerField(default=0)
    attempts = models.PositiveIntegerField(default=1)
    created_at = models.DateTimeField(default=timezone.now)
    updated_at = models.DateTimeField(default=timezone.now)

    class Meta:
        ordering = ["-id"]
        indexes = [models.Index(fields=["endpoint", "-id"])]

    def __str__(self) -> str:
        return f"{self.code} {self.before} → {self.after}"
