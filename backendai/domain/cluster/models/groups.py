"""Resource groups, their agents, and the tokens with which agents join."""

from __future__ import annotations

import uuid
from datetime import datetime, timedelta
from typing import Any

from django.conf import settings
from django.core.exceptions import ValidationError
from django.core.validators import RegexValidator
from django.db import models, transaction
from django.utils import timezone

from backendai.base.core.messages import Message
from backendai.base.core.session_kinds import KINDS
from backendai.base.core.slots import Slots
from backendai.domain.accounts.models import Domain, KeyPair, Project
from backendai.domain.activity.message_field import MessageField
from backendai.domain.cluster.groups.rules import wrong_rules
from backendai.domain.cluster.models.idle import IdleBinding, IdleChecker
from backendai.domain.cluster.models.site import Announcement, SiteSetting, SlotType
from backendai.domain.cluster.querysets import AgentQuerySet, JoinTokenQuerySet, ResourceGroupQuerySet

__all__ = [
    "Agent",
    "Announcement",
    "IdleBinding",
    "IdleChecker",
    "JoinToken",
    "PassLease",
    "Reachability",
    "ResourceGroup",
    "SiteSetting",
    "SlotType",
]

name_rule = RegexValidator(
    r"^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?\Z", Message("Use lower case letters, digits and dashes.")
)

DEFAULT_SELECTION = "concentrated"


def default_sequence() -> str:
    """Return the default sequence of a new group."""
    return str(settings.DEFAULT_SEQUENCE)


def default_session_types() -> list[str]:
    """Return the session types that a new group allows."""
    return list(KINDS)


class ResourceGroup(models.Model):
    """A set of agents with one queue and one set of scheduling rules."""

    class GiveUp(models.TextChoices):
        KEEP = "keep", Message("say so, and go on trying")
        LOWER = "lower-priority", Message("lower the priority by 10")
        CANCEL = "cancel", Message("cancel the session")

    class Devices(models.TextChoices):
        EVENLY = "evenly", Message("spread kernels over the devices")
        FILL = "fill", Message("fill one device after the other")

    name = models.CharField(max_length=63, unique=True, validators=[name_rule])
    description = models.CharField(max_length=255, blank=True)
    is_active = models.BooleanField(default=True)
    is_default = models.BooleanField(
        default=False, help_text=Message("Used when a launch names no group. Only one group can be the default.")
    )
    is_public = models.BooleanField(
        default=True, help_text=Message("If on, every project can use the group; if off, only the listed ones.")
    )
    domains = models.ManyToManyField(Domain, blank=True, related_name="resource_groups")
    projects = models.ManyToManyField(Project, blank=True, related_name="resource_groups")
    key_pairs = models.ManyToManyField(KeyPair, blank=True, related_name="resource_groups")
    session_defaults = models.JSONField(default=dict, blank=True, help_text=Message("Defaults of launches."))
    sequence = models.CharField(
        max_length=64, default=default_sequence, help_text=Message("Which session starts next.")
    )
    selection = models.CharField(
        max_length=64, default=DEFAULT_SELECTION, help_text=Message("On which agent it starts.")
    )
    slot_order = models.JSONField(
        default=list, blank=True, help_text=Message("Slots, the most precious first; empty: default order.")
    )
    retries_to_skip = models.PositiveIntegerField(
        default=0,
        help_text=Message("Failed attempts after which others can overtake a session that does not fit; 0: never."),
    )
    overtaking_limit = models.DurationField(
        default=timedelta(hours=24),
        help_text=Message("A session that was overtaken for this time gets its strict place back."),
    )
    backfill = models.BooleanField(
        default=False, help_text=Message("Sessions that end before the first one could start can overtake it.")
    )
    preempt_after = models.DurationField(
        null=True,
        blank=True,
        help_text=Message("Run time after which sessions give way to waiting ones of higher priority; empty: never."),
    )
    usage_half_life = models.DurationField(
        default=timedelta(days=7), help_text=Message("Fair share: time after which past use counts half.")
    )
    allowed_session_types = models.JSONField(default=default_session_types)
    max_kernels_per_agent = models.PositiveIntegerField(null=True, blank=True, help_text=Message("Empty: no limit."))
    device_allocation = models.CharField(max_length=16, choices=Devices, default=Devices.EVENLY)
    allow_fragmentation = models.BooleanField(
        default=True, help_text=Message("Combine fractions of several devices if no single device has enough.")
    )
    next_agent = models.CharField(max_length=63, blank=True, editable=False, help_text="Where round-robin goes on.")
    tries_counted_at = models.DateTimeField(
        null=True, editable=False, help_text="When tries of its sessions were counted last."
    )
    pending_timeout = models.DurationField(
        default=timedelta(0), help_text=Message("Longer pending sessions are cancelled; 0: never.")
    )
    give_up_after = models.PositiveIntegerField(
        default=0, help_text=Message("Scheduling attempts before a session is given up; 0: unlimited.")
    )
    on_give_up = models.CharField(max_length=16, choices=GiveUp, default=GiveUp.KEEP)
    pull_timeout = models.DurationField(default=timedelta(minutes=30))
    create_timeout = models.DurationField(default=timedelta(minutes=2))
    terminate_timeout = models.DurationField(default=timedelta(minutes=1))
    agent_lost_grace = models.DurationField(default=timedelta(minutes=5))
    max_retries = models.PositiveSmallIntegerField(
        default=3, help_text=Message("Failed starts before a session ends in an error.")
    )
    app_domain = models.CharField(
        max_length=180,
        blank=True,
        help_text=Message("Apps of sessions live under this domain; empty: under the site's."),
    )
    created_at = models.DateTimeField(default=timezone.now)

    objects = ResourceGroupQuerySet.as_manager()

    class Meta:
        ordering = ["name"]
        constraints = [
            models.UniqueConstraint(
                fields=["is_default"], condition=models.Q(is_default=True), name="one_default_resource_group"
            )
        ]

    def __str__(self) -> str:
        return self.name

    def save(self, *args: Any, **kwargs: Any) -> None:
        """Save the group.

        If it becomes the default, the earlier default ceases to be it. Raises ValidationError with the errors by field.
        """
        self.full_clean(exclude={"name"}, validate_unique=False, validate_constraints=False)
        with transaction.atomic():
            if self.is_default:
                ResourceGroup.objects.filter(is_default=True).exclude(pk=self.pk).update(is_default=False)
            super().save(*args, **kwargs)

    def validate_constraints(self, exclude: Any = None) -> None:
        """Validate the constraints, except that of one default group, which ``save`` maintains."""
        super().validate_constraints({*(exclude or ()), "is_default"})

    def clean(self) -> None:
        """Raise ValidationError with the errors by field."""
        if wrong := wrong_rules(self):
            raise ValidationError(wrong)


class Agent(models.Model):
    """A machine that runs kernels, with the agent's process. Its queue is ``node.<name>``."""

    class Status(models.TextChoices):
        ALIVE = "ALIVE", Message("alive")
        DRAINING = "DRAINING", Message("draining")
        LOST = "LOST", Message("lost")
        TERMINATED = "TERMINATED", Message("terminated")

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    name = models.CharField(max_length=63, unique=True, validators=[name_rule])
    resource_group = models.ForeignKey(ResourceGroup, on_delete=models.PROTECT, related_name="agents")
    status = models.CharField(max_length=16, choices=Status, default=Status.LOST)
    schedulable = models.BooleanField(default=True)
    backend = models.CharField(max_length=32, blank=True)
    architecture = models.CharField(max_length=32, blank=True)
    version = models.CharField(max_length=32, blank=True)
    boot_id = models.CharField(max_length=64, blank=True)
    gateway_url = models.CharField(max_length=255, blank=True)
    capacity = models.JSONField(default=dict, help_text="Slots that kernels may take, as decimal strings.")
    devices = models.JSONField(default=dict)
    widest = models.JSONField(
        default=list,
        editable=False,
        help_text="What the largest single machines behind it have for one kernel; empty: it is one machine.",
    )
    slowness = models.PositiveSmallIntegerField(
        default=1,
        db_default=1,
        editable=False,
        help_text="The factor by which starts take longer on it, as it reports.",
    )
    notes = models.JSONField(default=list, help_text="What an administrator should know, with the fix.")
    live = models.JSONField(
        default=dict,
        blank=True,
        help_text="Load of the agent at its last report: at (ISO time), cpu_pct (0-100), load "
        "(1 minute), mem_used, mem_total, disk_free and disk_total (bytes), "
        "devices: device id → slot, model, util_pct, mem_used, mem_total, "
        "numa, healthy, mock, note, kernels: kernel id → util_pct, mem_used. What is not known is null.",
    )
    engine = models.CharField(max_length=64, blank=True, help_text="Its container engine with the version.")
    os_kernel = models.CharField(max_length=64, blank=True, help_text="The Linux kernel of the machine.")
    low_disk = models.BooleanField(
        default=False, help_text=Message("Free disk space is below the reserve: the agent pulls no images.")
    )
    fault = MessageField(blank=True, help_text=Message("Why the agent cannot start sessions; empty: it can."))
    capabilities = models.JSONField(
        null=True,
        editable=False,
        help_text="What it says it can do; null: it has not reported since an upgrade.",
    )
    images_digest = models.CharField(max_length=64, blank=True)
    storage_digest = models.CharField(
        max_length=64,
        blank=True,
        editable=False,
        help_text=Message("Digest of its last report on storage hosts; empty: none."),
    )
    unknown_kernels = models.PositiveIntegerField(
        default=0, editable=False, help_text=Message("Kernels on the agent that are not in this database.")
    )
    unknown_running = models.PositiveIntegerField(
        default=0,
        editable=False,
        help_text=Message("Running unknown kernels: while there are any, the agent gets no new sessions."),
    )
    reserved = models.JSONField(default=dict, blank=True, help_text="Amounts that the agent reserves for its machine.")
    max_kernels = models.PositiveIntegerField(null=True, blank=True, help_text=Message("Empty: the group's setting."))
    drain_started_at = models.DateTimeField(null=True, blank=True, help_text="Since when it takes no new sessions.")
    drain_ends_at = models.DateTimeField(null=True, blank=True, help_text="When what still runs on it is ended.")
    drain_kernels = models.PositiveIntegerField(default=0, help_text="How many kernels ran when draining began.")
    revoked_at = models.DateTimeField(null=True, blank=True, help_text="Since when its credential is refused.")
    token_digest = models.CharField(max_length=64, unique=True)
    broker_digest = models.CharField(
        max_length=64, blank=True, editable=False, help_text="SHA-256 of its password at the broker; empty: no account."
    )
    last_seen_at = models.DateTimeField(null=True, blank=True)
    lost_at = models.DateTimeField(null=True, blank=True)
    returned_at = models.DateTimeField(null=True, blank=True, help_text="When it was last found again after a loss.")
    created_at = models.DateTimeField(default=timezone.now)

    objects = AgentQuerySet.as_manager()

    class Meta:
        ordering = ["name"]

    def __str__(self) -> str:
        return self.name

    @property
    def slots(self) -> Slots:
        """The capacity as slots."""
        return Slots.parse(self.capacity)

    @property
    def is_drained(self) -> bool:
        """Whether an administrator drains the agent, so that it takes no new sessions."""
        return self.drain_started_at is not None

    @property
    def needs_own_token(self) -> bool:
        """Whether the agent can return only with a join token made for it."""
        return self.revoked_at is not None or self.status == self.Status.TERMINATED


class JoinToken(models.Model):
    """A token with which a machine joins as an agent; stored as a hash.

    With ``agent`` it is only for the return of that agent.
    """

    digest = models.CharField(max_length=64, unique=True)
    hint = models.CharField(max_length=16, blank=True, help_text="How its text begins.")
    agent = models.ForeignKey(Agent, null=True, blank=True, on_delete=models.CASCADE, related_name="join_tokens")
    created_by = models.ForeignKey(
        settings.AUTH_USER_MODEL, null=True, blank=True, on_delete=models.SET_NULL, related_name="+"
    )
    resource_group = models.ForeignKey(ResourceGroup, on_delete=models.CASCADE, related_name="join_tokens")
    name_prefix = models.CharField(max_length=63, blank=True, help_text=Message("Required prefix of the agent's name."))
    is_reusable = models.BooleanField(default=False)
    used_at = models.DateTimeField(null=True, blank=True)
    expires_at = models.DateTimeField(null=True, blank=True)
    created_at = models.DateTimeField(default=timezone.now)

    objects = JoinTokenQuerySet.as_manager()

    class Meta:
        ordering = ["-created_at", "-id"]

    def __str__(self) -> str:
        return Message("join token for {agent}", agent=self.agent or self.resource_group)

    def is_usable(self, now: datetime) -> bool:
        """Return whether an agent could still join with the token."""
        return self.used_at is None and (self.expires_at is None or self.expires_at > now)


class PassLease(models.Model):
    """A lease that ensures that only one control worker runs a loop's pass.

    It is taken by compare-and-set, and expires by itself.
    """

    name = models.CharField(max_length=96, primary_key=True)
    owner = models.CharField(max_length=64, blank=True)
    until = models.DateTimeField(default=timezone.now)
    finished_at = models.DateTimeField(null=True, blank=True)

    def __str__(self) -> str:
        return self.name


class Reachability(models.Model):
    """The time since which agents could reach the portal without interruption; one row.

    While the portal or its repair pass is down, silent agents are not marked lost, and deadlines that need an agent are
    suspended.
    """

    since = models.DateTimeField()
    noted_at = models.DateTimeField()

    def __str__(self) -> str:
        return f"agents can reach the portal since {self.since.isoformat()}"


class DatabaseEpoch(models.Model):
    """The age of this database; one row.

    ``tick`` grows with every repair pass, and decreases only when a backup is restored.
    """

    lineage = models.UUIDField(default=uuid.uuid4)
    tick = models.PositiveBigIntegerField(default=0)
    mark = models.CharField(max_length=32, blank=True, help_text=Message("This portal's last mark in the broker."))
    strangers = models.PositiveSmallIntegerField(
        default=0, help_text=Message("Passes in a row that found another portal's mark in the broker.")
    )

    def __str__(self) -> str:
        return f"{self.lineage}:{self.tick}"
