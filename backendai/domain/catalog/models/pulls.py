"""Pulls of images by agents."""

from __future__ import annotations

from django.db import models

from backendai.base.core.messages import Message
from backendai.domain.activity.models import BackgroundJob
from backendai.domain.catalog.models.images import Image
from backendai.domain.cluster.models import Agent
from backendai.domain.cluster.node_jobs import NodeJobRow


class ImagePull(NodeJobRow):
    """One agent's part of a background job that pulls an image. Deleting the job deletes it."""

    class Status(models.TextChoices):
        WAITING = "WAITING", Message("waiting")
        PULLING = "PULLING", Message("pulling")
        DONE = "DONE", Message("there")
        FAILED = "FAILED", Message("failed")
        CANCELLED = "CANCELLED", Message("cancelled")

    job = models.ForeignKey(BackgroundJob, on_delete=models.CASCADE, related_name="pulls")
    image = models.ForeignKey(Image, on_delete=models.CASCADE, related_name="pulls")
    agent = models.ForeignKey(Agent, on_delete=models.CASCADE, related_name="pulls")
    status = models.CharField(max_length=16, choices=Status, default=Status.WAITING)
    progress = models.FloatField(null=True, blank=True, help_text="From 0 to 1; empty: not known.")

    class Meta:
        ordering = ["agent__name"]
        constraints = [models.UniqueConstraint(fields=["job", "agent"], name="pull_once_per_job")]
        indexes = [
            models.Index(fields=["agent"], condition=models.Q(status__in=["WAITING", "PULLING"]), name="pull_not_over")
        ]

    def __str__(self) -> str:
        return f"{self.image} on {self.agent}: {self.status}"

    @property
    def is_over(self) -> bool:
        """Whether the pull has ended."""
        return self.status not in (self.Status.WAITING, self.Status.PULLING)

    @property
    def percent(self) -> int | None:
        """The progress from 0 to 100, or None if it is unknown."""
        return None if self.progress is None else int(100 * self.progress)
