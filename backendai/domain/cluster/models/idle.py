"""Idle checkers, and the places where they apply."""

from __future__ import annotations

import hashlib
import json
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from django.core.exceptions import ValidationError
from django.db import models
from django.utils import timezone

from backendai.base.core.messages import Message
from backendai.base.core.session_kinds import kinds_with
from backendai.domain.accounts.models import Project
from backendai.domain.cluster.idle.rules import wrong_checker
from backendai.scheduler.find_idle import ALL, ANY, Rule
from backendai.scheduler.idle_kinds import IDLE_KINDS, kind_choices
from backendai.scheduler.idle_kinds.network import Network

if TYPE_CHECKING:
    from backendai.domain.accounts.models import User


def default_types() -> list[str]:
    """Return the session types that a new checker checks.

    Batch sessions are not among them, as they work without a user.
    """
    return kinds_with("is_usually_checked")


class IdleCheckerQuerySet(models.QuerySet[Any]):
    def visible_to(self, user: User) -> IdleCheckerQuerySet:
        """Return all checkers for superadmins, none for others. Others see the effect on their sessions."""
        return self if user.role == "superadmin" else self.none()


class IdleChecker(models.Model):
    """A rule that warns idle sessions, and ends them after the time of the warning."""

    class Match(models.TextChoices):
        ALL = ALL, Message("all of them are below")
        ANY = ANY, Message("any of them is below")

    class AtEnd(models.TextChoices):
        STOP = "stop", Message("stop it: its files are stored, and it can be resumed")
        TERMINATE = "terminate", Message("terminate it")

    name = models.CharField(max_length=64, unique=True)
    description = models.CharField(max_length=255, blank=True)
    kind = models.CharField(max_length=24, choices=kind_choices, default=Network.name)
    is_active = models.BooleanField(default=True, help_text=Message("If off, it neither warns nor ends sessions."))
    limit = models.DurationField(
        default=timedelta(hours=1),
        help_text=Message("Maximum lifetime, maximum time without traffic, or averaging time of utilization."),
    )
    grace = models.DurationField(default=timedelta(0), help_text=Message("Sessions younger than this are never ended."))
    warning = models.DurationField(
        default=timedelta(minutes=15), help_text=Message("Time between the warning and the end.")
    )
    thresholds = models.JSONField(
        default=dict, blank=True, help_text=Message("Slots with percentages; below them a slot counts as unused.")
    )
    match = models.CharField(max_length=8, choices=Match, default=Match.ALL)
    session_types = models.JSONField(default=default_types)
    at_end = models.CharField(
        max_length=16,
        choices=AtEnd,
        default=AtEnd.STOP,
        help_text=Message(
            "What cannot be stopped, such as a batch session launched without May be stopped, is terminated."
        ),
    )
    extension = models.DurationField(default=timedelta(hours=1), help_text=Message("Extension per click of the owner."))
    max_extensions = models.PositiveSmallIntegerField(
        default=3, help_text=Message("Maximum extensions by the owner; 0: none.")
    )
    created_at = models.DateTimeField(default=timezone.now, editable=False)

    objects = IdleCheckerQuerySet.as_manager()

    class Meta:
        ordering = ["kind", "name"]

    def __str__(self) -> str:
        return self.name

    def save(self, *args: Any, **kwargs: Any) -> None:
        """Save the checker. Raises ValidationError with the errors by field."""
        self.full_clean(validate_unique=False, validate_constraints=False)
        super().save(*args, **kwargs)

    def clean(self) -> None:
        """Raise ValidationError with the errors by field."""
        if wrong := wrong_checker(self):
            raise ValidationError(wrong)

    @property
    def rule(self) -> Rule:
        """The checker as a rule of the scheduler.

        Its ``sign`` changes with every value that decides about a session.
        """
        times = (self.limit, self.grace, self.warning)
        said = [self.kind, [each.total_seconds() for each in times], self.thresholds, self.match]
        sign = hashlib.sha256(json.dumps(said, sort_keys=True).encode()).hexdigest()[:16]
        shares = {slot: float(percent) / 100 for slot, percent in sorted(self.thresholds.items())}
        stops = self.at_end == self.AtEnd.STOP
        return Rule(self.pk, self.name, IDLE_KINDS[self.kind], *times, shares, self.match, sign, stops)


class IdleBinding(models.Model):
    """A place where a checker applies: a resource group, a project, or with neither the whole site.

    ``applies`` False excludes the place from a wider binding.
    """

    checker = models.ForeignKey(IdleChecker, on_delete=models.CASCADE, related_name="bindings", db_index=False)
    resource_group = models.ForeignKey(
        "cluster.ResourceGroup", null=True, blank=True, on_delete=models.CASCADE, related_name="idle_bindings"
    )
    project = models.ForeignKey(Project, null=True, blank=True, on_delete=models.CASCADE, related_name="idle_bindings")
    applies = models.BooleanField(default=True)

    class Meta:
        ordering = ["pk"]
        constraints = [
            models.UniqueConstraint(fields=["checker", "resource_group"], name="idle_binding_once_per_group"),
            models.UniqueConstraint(fields=["checker", "project"], name="idle_binding_once_per_project"),
            models.UniqueConstraint(
                fields=["checker"],
                condition=models.Q(resource_group=None, project=None),
                name="idle_binding_once_for_the_site",
            ),
            models.CheckConstraint(
                condition=models.Q(resource_group=None) | models.Q(project=None), name="idle_binding_names_one_place"
            ),
        ]

    def __str__(self) -> str:
        return f"{self.checker}: {self.resource_group or self.project or '*'}"
