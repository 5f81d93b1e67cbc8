"""Shares of own images with projects."""

from __future__ import annotations

from django.db import models
from django.utils import timezone

from backendai.domain.accounts.models import Project
from backendai.domain.catalog.models.images import Image
from backendai.domain.catalog.querysets import ImageShareQuerySet


class ImageShare(models.Model):
    """The right of a project's members to start sessions from the image of one of them."""

    image = models.ForeignKey(Image, on_delete=models.CASCADE, related_name="shares")
    project = models.ForeignKey(Project, on_delete=models.CASCADE, related_name="shared_images")
    created_at = models.DateTimeField(default=timezone.now)

    objects = ImageShareQuerySet.as_manager()

    class Meta:
        ordering = ["image", "project"]
        constraints = [models.UniqueConstraint(fields=["image", "project"], name="image_shared_once")]

    def __str__(self) -> str:
        return f"{self.image_id}/{self.project_id}"
