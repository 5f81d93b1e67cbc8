"""Slot types, settings of the site, and announcements."""

from __future__ import annotations

from typing import Any

from django.conf import settings
from django.core.exceptions import ValidationError
from django.core.validators import MaxValueValidator, MinValueValidator, RegexValidator
from django.db import models
from django.utils import timezone

from backendai.base.core.messages import Message
from backendai.base.core.slots import MILLI, decimal_text

slot_rule = RegexValidator(r"^[a-z][a-z0-9]*([.\-_][a-z0-9]+)*\Z", Message("Use a name such as cpu or cuda.device."))


class SlotType(models.Model):
    """A kind of resource, and its display.

    A slot that only one agent offers gets a row that is not enabled. The row is deleted with the agent, unless an
    administrator enables it.
    """

    class Kind(models.TextChoices):
        COUNT = "count", Message("a number")
        BYTES = "bytes", Message("a size in bytes")
        UNIQUE = "unique", Message("whole devices, each of its own kind")

    name = models.CharField(max_length=64, unique=True, validators=[slot_rule])
    kind = models.CharField(max_length=16, choices=Kind, default=Kind.COUNT)
    display_name = models.CharField(max_length=64)
    unit = models.CharField(max_length=16, blank=True, help_text=Message("Shown after the number, for example cores."))
    description = models.CharField(max_length=255, blank=True)
    quantum = models.BigIntegerField(
        default=1,
        validators=[MinValueValidator(1), MaxValueValidator(2**62)],
        help_text=Message("The step of amounts, in thousandths of the unit."),
    )
    rank = models.PositiveSmallIntegerField(default=100, help_text=Message("Lower numbers come first."))
    is_enabled = models.BooleanField(default=True, help_text=Message("Launches can request it."))
    offered_by = models.ForeignKey(
        "cluster.Agent", null=True, blank=True, editable=False, on_delete=models.CASCADE, related_name="+"
    )
    created_at = models.DateTimeField(default=timezone.now)

    class Meta:
        ordering = ["rank", "name"]

    def __str__(self) -> str:
        return self.name

    @property
    def step(self) -> str:
        """The smallest step in the slot's unit, as a decimal."""
        return decimal_text(self.quantum)

    def clean(self) -> None:
        """Raise ValidationError for a fractional step of bytes or whole devices."""
        if self.kind != self.Kind.COUNT and self.quantum % MILLI:
            raise ValidationError({"quantum": Message("Bytes and whole devices are counted in whole numbers.")})


class SiteSetting(models.Model):
    """A setting that an administrator has changed; without a row the default holds.

    ``site.SCHEMA`` lists all settings.
    """

    name = models.CharField(max_length=64, primary_key=True)
    value = models.JSONField()
    changed_at = models.DateTimeField(default=timezone.now)
    changed_by = models.ForeignKey(
        settings.AUTH_USER_MODEL, null=True, blank=True, on_delete=models.SET_NULL, related_name="+"
    )

    class Meta:
        ordering = ["name"]

    def __str__(self) -> str:
        return self.name


class Announcement(models.Model):
    """A short text at the top of every page, shown between two times."""

    class Tone(models.TextChoices):
        INFO = "info", Message("information")
        WARNING = "warning", Message("warning")
        DANGER = "danger", Message("trouble")

    text = models.CharField(max_length=500, help_text=Message("Plain text; addresses become links."))
    tone = models.CharField(max_length=16, choices=Tone, default=Tone.INFO)
    starts_at = models.DateTimeField(default=timezone.now)
    ends_at = models.DateTimeField(null=True, blank=True, help_text=Message("Empty: until it is deleted."))
    created_at = models.DateTimeField(default=timezone.now)

    class Meta:
        ordering = ["-starts_at", "-pk"]

    def __str__(self) -> str:
        return self.text[:60]

    def save(self, *args: Any, **kwargs: Any) -> None:
        """Save the announcement. Raises ValidationError with the errors by field."""
        self.clean()
        super().save(*args, **kwargs)

    def clean(self) -> None:
        """Raise ValidationError if the end is not after the start."""
        if self.ends_at is not None and self.ends_at <= self.starts_at:
            raise ValidationError({"ends_at": Message("It ends before it begins.")})
