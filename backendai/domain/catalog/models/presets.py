"""Resource presets."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from django.core.exceptions import ValidationError
from django.db import models

from backendai.base.core.slots import Slots
from backendai.domain.catalog.preset_rules import exact_amounts, taken_name, wrong_preset
from backendai.domain.catalog.querysets import PresetQuerySet
from backendai.domain.cluster.models import ResourceGroup


class ResourcePreset(models.Model):
    """A named set of amounts, which people choose instead of numbers."""

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
        """Save the preset. Raises ValidationError with the errors by field."""
        self.full_clean(validate_unique=False, validate_constraints=False)
        super().save(*args, **kwargs)

    def validate_constraints(self, exclude: Collection[str] | None = None) -> None:
        """Raise ValidationError at the field ``name`` for a violated constraint.

        Its text says where the name is already used.
        """
        try:
            super().validate_constraints(exclude)
        except ValidationError as error:
            raise ValidationError({"name": taken_name(self.name, self.resource_group)}) from error

    def clean(self) -> None:
        """Normalize the amounts to exact decimal strings. Raises ValidationError with the errors by field."""
        wrong = wrong_preset(self.name, self.slots, self.shm_bytes)
        if wrong:
            raise ValidationError(wrong)
        self.slots = exact_amounts(self.slots)

    @property
    def amounts(self) -> Slots:
        """The amounts of the preset as slots."""
        return Slots.parse(self.slots)
