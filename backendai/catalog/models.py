"""What one picks: images and resource presets."""

from __future__ import annotations

import uuid
from typing import Any

from django.core.exceptions import ValidationError
from django.db import models
from django.utils import timezone

from backendai.catalog.preset_rules import exact_amounts, wrong_preset
from backendai.catalog.querysets import ImageQuerySet, PresetQuerySet
from backendai.cluster.models import Agent, ResourceGroup
from backendai.core.slots import Slots


class Image(models.Model):
    """An environment that sessions start from. ``name`` is what people type, ``reference`` what the engine pulls."""

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    name = models.CharField(max_length=128, unique=True)
    title = models.CharField(max_length=128, blank=True)
    description = models.CharField(max_length=255, blank=True)
    reference = models.CharField(max_length=255, unique=True)
    process_reference = models.CharField(
        max_length=255, blank=True, help_text="What agents without a container engine run instead."
    )
    architecture = models.CharField(max_length=32, blank=True)
    labels = models.JSONField(default=dict, blank=True)
    minimum = models.JSONField(default=dict, blank=True, help_text="Smallest slots, as decimal strings.")
    is_enabled = models.BooleanField(default=True)
    is_built_here = models.BooleanField(default=False, help_text="Made on this machine by build-images.")
    created_at = models.DateTimeField(default=timezone.now)

    objects = ImageQuerySet.as_manager()

    class Meta:
        ordering = ["name"]

    def __str__(self) -> str:
        return self.name

    @property
    def minimum_slots(self) -> Slots:
        """The smallest amounts a kernel of it may ask for."""
        return Slots.parse(self.minimum)

    @property
    def display_name(self) -> str:
        """The name to show."""
        return self.title or self.name


class ImageOnAgent(models.Model):
    """An agent can start this reference without a pull."""

    agent = models.ForeignKey(Agent, on_delete=models.CASCADE, related_name="images")
    reference = models.CharField(max_length=255, db_index=True)
    digest = models.CharField(max_length=128, blank=True)
    architecture = models.CharField(max_length=32, blank=True)
    size_bytes = models.BigIntegerField(default=0)
    labels = models.JSONField(default=dict)

    class Meta:
        constraints = [models.UniqueConstraint(fields=["agent", "reference"], name="image_once_per_agent")]

    def __str__(self) -> str:
        return f"{self.reference} on {self.agent_id}"


class ResourcePreset(models.Model):
    """A named amount of resources to pick instead of numbers."""

    name = models.CharField(max_length=64)
    resource_group = models.ForeignKey(
        ResourceGroup, null=True, blank=True, on_delete=models.CASCADE, related_name="presets"
    )
    slots = models.JSONField(help_text="Slots as decimal strings or sizes: {'cpu': 2, 'mem': '4g'}.")
    shm_bytes = models.BigIntegerField(null=True, blank=True)
    rank = models.IntegerField(default=0)

    objects = PresetQuerySet.as_manager()

    class Meta:
        ordering = ["rank", "name"]
        constraints = [
            models.UniqueConstraint(fields=["name", "resource_group"], name="preset_name_once_per_group"),
            models.UniqueConstraint(
                fields=["name"], condition=models.Q(resource_group=None), name="preset_name_once_for_all"
            ),
        ]

    def __str__(self) -> str:
        return self.name

    def save(self, *args: Any, **kwargs: Any) -> None:
        """Write it; raises a ValidationError by field for what makes no sense."""
        self.full_clean(validate_unique=False, validate_constraints=False)
        super().save(*args, **kwargs)

    def clean(self) -> None:
        """Bring the amounts into their exact form."""
        wrong = wrong_preset(self.name, self.slots, self.shm_bytes)
        if wrong:
            raise ValidationError(wrong)
        self.slots = exact_amounts(self.slots)

    @property
    def amounts(self) -> Slots:
        """The preset as amounts."""
        return Slots.parse(self.slots)
