"""Resource policies, and the default policies of new holders."""

from __future__ import annotations

from typing import Any, ClassVar

from django.core.exceptions import ValidationError
from django.core.validators import MaxValueValidator, MinValueValidator
from django.db import models
from django.utils import timezone

from backendai.base.core.errors import UserError
from backendai.base.core.labels import check_label_keys
from backendai.base.core.messages import Message
from backendai.domain.accounts.policies.rules import clean_amounts, wrong_limits
from backendai.domain.accounts.querysets import PolicyQuerySet


class ResourcePolicy(models.Model):
    """The limits of a key pair, user, project or domain. An empty field means no limit."""

    class Unnamed(models.TextChoices):
        UNLIMITED = "unlimited", Message("any amount of it")
        LIMITED = "limited", Message("none of it")

    name = models.CharField(max_length=64, unique=True)
    slots = models.JSONField(
        default=dict, blank=True, help_text="Maximum of running sessions together, as decimal strings."
    )
    unnamed_slots = models.CharField(
        max_length=16,
        choices=Unnamed,
        default=Unnamed.UNLIMITED,
        help_text=Message("For slots that are not listed above."),
    )
    max_sessions = models.PositiveIntegerField(null=True, blank=True, help_text="Running sessions at once.")
    max_pending_sessions = models.PositiveIntegerField(null=True, blank=True)
    max_pending_slots = models.JSONField(default=dict, blank=True, help_text="Maximum of pending sessions together.")
    max_priority = models.PositiveSmallIntegerField(null=True, blank=True, validators=[MaxValueValidator(100)])
    max_kernels_per_session = models.PositiveSmallIntegerField(null=True, blank=True)
    max_session_lifetime = models.DurationField(null=True, blank=True)
    max_concurrent_logins = models.PositiveSmallIntegerField(
        null=True,
        blank=True,
        validators=[MinValueValidator(1)],
        help_text=Message("Of one user; one more ends the oldest."),
    )
    max_customized_images = models.PositiveSmallIntegerField(
        null=True, blank=True, help_text=Message("Images that one user can save from sessions.")
    )
    max_stopped_sessions = models.PositiveIntegerField(
        null=True, blank=True, help_text=Message("Stopped sessions of one user at once.")
    )
    max_system_sessions = models.PositiveSmallIntegerField(
        null=True, blank=True, help_text=Message("File access sessions of one user at once.")
    )
    max_endpoints = models.PositiveIntegerField(
        null=True, blank=True, help_text=Message("Endpoints that exist at the same time.")
    )
    max_replicas_per_endpoint = models.PositiveSmallIntegerField(
        null=True, blank=True, validators=[MinValueValidator(1)]
    )
    max_folders = models.PositiveIntegerField(
        null=True, blank=True, help_text=Message("Folders of one user or one project.")
    )
    max_folder_bytes = models.BigIntegerField(
        null=True,
        blank=True,
        validators=[MinValueValidator(0)],
        help_text=Message("Sum of the limits of these folders."),
    )
    required_labels = models.JSONField(
        default=list, db_default=[], blank=True, help_text=Message("Keys of labels that launches must have.")
    )
    created_at = models.DateTimeField(default=timezone.now)

    objects = PolicyQuerySet.as_manager()

    class Meta:
        ordering = ["name"]
        verbose_name_plural = Message("resource policies")

    def __str__(self) -> str:
        return self.name

    def save(self, *args: Any, **kwargs: Any) -> None:
        """Save the policy. Raises ValidationError with the error of each invalid limit."""
        self.full_clean(validate_unique=False, validate_constraints=False)
        super().save(*args, **kwargs)

    def clean(self) -> None:
        """Normalize the amounts to exact decimal strings. Raises ValidationError for invalid limits."""
        wrong = wrong_limits(self.max_kernels_per_session, self.max_session_lifetime)
        for field in ("slots", "max_pending_slots"):
            try:
                setattr(self, field, clean_amounts(getattr(self, field), field=field))
            except UserError as error:
                wrong[field] = error.message
        try:
            self.required_labels = check_label_keys(self.required_labels, field="required_labels")
        except UserError as error:
            wrong["required_labels"] = error.message
        if wrong:
            raise ValidationError(wrong)


def policy_field(related_name: str) -> models.ForeignKey[Any, Any]:
    """Return the foreign key of a holder to its policy; empty means no limits."""
    return models.ForeignKey(ResourcePolicy, on_delete=models.PROTECT, null=True, blank=True, related_name=related_name)


class PolicyDefault(models.Model):
    """The default policy of one kind of holder, for new holders without a policy of their own."""

    class Holder(models.TextChoices):
        KEY_PAIR = "key-pair", Message("key pairs")
        USER = "user", Message("users")
        PROJECT = "project", Message("projects")
        DOMAIN = "domain", Message("domains")

    holder = models.CharField(max_length=16, choices=Holder, primary_key=True)
    policy = models.ForeignKey(ResourcePolicy, on_delete=models.PROTECT, related_name="default_for")

    class Meta:
        ordering = ["holder"]

    def __str__(self) -> str:
        return self.holder


class HeldToPolicy:
    """A mixin for holders of sessions: a new holder gets the default policy of its kind."""

    policy_kind: ClassVar[str]
    policy_id: Any
    _state: Any

    def save(self, *args: Any, **kwargs: Any) -> None:
        """Save the holder; a new one without a policy gets the default policy of its kind."""
        if self._state.adding and self.policy_id is None:
            of_kind = PolicyDefault.objects.filter(holder=self.policy_kind)
            self.policy_id = of_kind.values_list("policy_id", flat=True).first()
        super().save(*args, **kwargs)  # type: ignore[misc]
