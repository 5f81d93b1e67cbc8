"""Inference endpoints, what they run, what they are measured by, and what was decided about them.

Only ``moves`` writes ``Replica.state`` and ``Endpoint.desired``.
"""

from __future__ import annotations

import uuid
from datetime import timedelta

from django.conf import settings
from django.core.validators import MaxValueValidator, MinValueValidator
from django.db import models
from django.db.models import F, Q
from django.utils import timezone

from backendai.domain.accounts.models import Project
from backendai.domain.activity.message_field import MessageField
from backendai.domain.catalog.models import Image
from backendai.domain.cluster.models import ResourceGroup
from backendai.domain.compute.models import ComputeSession
from backendai.domain.compute.status import ClusterMode
from backendai.domain.serving.querysets import EndpointQuerySet, EndpointTokenQuerySet, ReplicaQuerySet
from backendai.domain.serving.rule_kinds import metric_choices
from backendai.scheduler.serving.snapshot import DesiredState, ReplicaState

MOST_REPLICAS = 100


class Endpoint(models.Model):
    """An address, and the wish how many replicas of which revision serve there.

    ``version`` grows with every change that an app proxy must know.
    """

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    name = models.CharField(max_length=40)
    owner = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.PROTECT, related_name="endpoints")
    project = models.ForeignKey(Project, on_delete=models.PROTECT, related_name="endpoints")
    resource_group = models.ForeignKey(ResourceGroup, on_delete=models.PROTECT, related_name="endpoints")
    wish = models.CharField(
        max_length=16, choices=[(one.value, one.value) for one in DesiredState], default=DesiredState.RUN
    )
    current = models.ForeignKey("Revision", null=True, on_delete=models.PROTECT, related_name="+")
    next = models.ForeignKey("Revision", null=True, blank=True, on_delete=models.PROTECT, related_name="+")
    minimum = models.PositiveSmallIntegerField(default=1, validators=[MaxValueValidator(MOST_REPLICAS)])
    maximum = models.PositiveSmallIntegerField(
        default=1, validators=[MinValueValidator(1), MaxValueValidator(MOST_REPLICAS)]
    )
    target = models.FloatField(
        default=4.0, help_text="Concurrent requests per replica; more replicas start above this."
    )
    concurrency = models.PositiveIntegerField(
        default=0, help_text="The most concurrent requests of a replica; 0: unlimited."
    )
    queue = models.PositiveIntegerField(default=100, help_text="The most requests that wait for a replica.")
    queue_seconds = models.FloatField(default=30.0)
    hold_seconds = models.FloatField(default=60.0, help_text="Seconds that a request waits for the first replica.")
    answer_timeout = models.FloatField(default=600.0, help_text="Seconds of silence after which a request fails.")
    max_body = models.BigIntegerField(default=100 * 2**20)
    is_repeatable = models.BooleanField(
        default=False, help_text="On: a failed request may be sent to a second replica."
    )
    is_public = models.BooleanField(default=False, help_text="On: anyone may send requests without a token.")
    origins = models.JSONField(
        default=list,
        db_default=models.Value([], models.JSONField()),
        blank=True,
        help_text="Origins of pages that may send requests.",
    )
    warm_up = models.FloatField(
        default=0.0, db_default=0.0, help_text="Seconds until a new replica gets its full share of requests."
    )
    affinity = models.CharField(
        max_length=64,
        blank=True,
        db_default="",
        help_text="Requests with the same value of this header go to one replica; empty: none.",
    )
    canary = models.PositiveSmallIntegerField(
        default=0,
        db_default=0,
        validators=[MaxValueValidator(100)],
        help_text="Per cent of requests that go to the new revision; 0: replicas share equally.",
    )
    max_surge = models.PositiveSmallIntegerField(default=1)
    max_unavailable = models.PositiveSmallIntegerField(default=0)
    asleep_after = models.DurationField(default=timedelta(minutes=15))
    desired = models.PositiveSmallIntegerField(default=0, editable=False)
    reached = models.PositiveSmallIntegerField(
        default=0,
        db_default=0,
        editable=False,
        help_text="The most replicas that have answered at once, of those that are wanted now.",
    )
    panic_until = models.DateTimeField(null=True, blank=True, editable=False)
    scaled_at = models.DateTimeField(null=True, blank=True, editable=False)
    asked_at = models.DateTimeField(null=True, blank=True, editable=False, help_text="When the newest request came.")
    peaks = models.JSONField(
        default=list, editable=False, help_text="Highest loads of the last five minutes, one per half minute."
    )
    told = models.JSONField(
        default=dict,
        db_default=models.Value({}, models.JSONField()),
        editable=False,
        help_text="Why replicas are missing now; empty: none are.",
    )
    last_number = models.PositiveIntegerField(default=0, editable=False, help_text="The number of its newest replica.")
    version = models.PositiveBigIntegerField(default=1, editable=False)
    created_at = models.DateTimeField(default=timezone.now)
    deleted_at = models.DateTimeField(null=True, blank=True, editable=False)

    objects = EndpointQuerySet.as_manager()

    class Meta:
        ordering = ["name", "pk"]
        constraints = [
            models.UniqueConstraint(
                fields=["project", "name"], condition=~Q(wish="deleted"), name="endpoint_name_once_per_project"
            ),
            models.CheckConstraint(condition=Q(minimum__lte=F("maximum")), name="endpoint_minimum_below_maximum"),
            models.CheckConstraint(condition=Q(maximum__gte=1), name="endpoint_maximum_is_one_or_more"),
            models.CheckConstraint(condition=Q(target__gt=0), name="endpoint_target_above_zero"),
            models.CheckConstraint(
                condition=Q(max_surge__gte=1) | Q(max_unavailable__gte=1), name="endpoint_can_be_updated"
            ),
        ]

    def __str__(self) -> str:
        return self.name

    @property
    def label(self) -> str:
        """The first label of its host name, which no other endpoint ever has."""
        return f"{self.name}-{self.pk.hex[:12]}"


class Revision(models.Model):
    """What the replicas of an endpoint run. Never changed, but for how its starts went."""

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    endpoint = models.ForeignKey(Endpoint, on_delete=models.CASCADE, related_name="revisions")
    number = models.PositiveIntegerField()
    image = models.ForeignKey(Image, on_delete=models.PROTECT, related_name="+")
    command = models.TextField()
    port = models.PositiveIntegerField(default=8000)
    environ = models.JSONField(default=dict, blank=True)
    mounts = models.JSONField(
        default=list,
        db_default=models.Value([], models.JSONField()),
        blank=True,
        help_text="Mounted folders, as in a launch document.",
    )
    slots = models.JSONField(help_text="Amounts of each kernel as decimal strings.")
    cluster_size = models.PositiveSmallIntegerField(default=1)
    cluster_mode = models.CharField(max_length=16, choices=ClusterMode, default=ClusterMode.SINGLE_NODE)
    probe_path = models.CharField(
        max_length=255,
        default="/health",
        blank=True,
        help_text="Path of the health check; empty: a connection is enough.",
    )
    startup_timeout = models.DurationField(default=timedelta(minutes=20))
    drain_timeout = models.DurationField(default=timedelta(minutes=10))
    model_name = models.CharField(max_length=128, blank=True)
    failed_starts = models.PositiveIntegerField(default=0, editable=False)
    retry_at = models.DateTimeField(null=True, blank=True, editable=False)
    last_error = models.CharField(max_length=500, blank=True, editable=False)
    created_by = models.ForeignKey(settings.AUTH_USER_MODEL, null=True, on_delete=models.SET_NULL, related_name="+")
    created_at = models.DateTimeField(default=timezone.now)

    class Meta:
        ordering = ["-number"]
        constraints = [models.UniqueConstraint(fields=["endpoint", "number"], name="revision_number_once_per_endpoint")]

    def __str__(self) -> str:
        return f"{self.endpoint_id}/{self.number}"


class Replica(models.Model):
    """One session that serves an endpoint. Ended ones are kept as history."""

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    endpoint = models.ForeignKey(Endpoint, on_delete=models.CASCADE, related_name="replicas")
    revision = models.ForeignKey(Revision, on_delete=models.PROTECT, related_name="replicas")
    number = models.PositiveIntegerField()
    session = models.OneToOneField(ComputeSession, on_delete=models.PROTECT, related_name="replica")
    state = models.CharField(
        max_length=16, choices=[(one.value, one.value) for one in ReplicaState], default=ReplicaState.STARTING
    )
    reason = models.CharField(max_length=64, blank=True)
    message = models.CharField(max_length=500, blank=True)
    loading_at = models.DateTimeField(null=True, blank=True)
    ready_at = models.DateTimeField(null=True, blank=True)
    silent_since = models.DateTimeField(
        null=True, blank=True, help_text="Since when no app proxy gets answers from it."
    )
    drain_by = models.DateTimeField(null=True, blank=True)
    drain_version = models.PositiveBigIntegerField(
        default=0, help_text="Version of the endpoint that first lists it as draining."
    )
    created_at = models.DateTimeField(default=timezone.now)
    ended_at = models.DateTimeField(null=True, blank=True)

    objects = ReplicaQuerySet.as_manager()

    class Meta:
        ordering = ["-number"]
        indexes = [
            models.Index(fields=["endpoint"], condition=~Q(state="ended"), name="replica_live_of_endpoint"),
        ]
        constraints = [models.UniqueConstraint(fields=["endpoint", "number"], name="replica_number_once_per_endpoint")]

    def __str__(self) -> str:
        return f"{self.endpoint_id}#{self.number}"


class AutoScalingRule(models.Model):
    """A step rule beside the target. One cool-down of five minutes holds for all rules of an endpoint. ``value`` and
    ``trouble`` are the last answer to ``query``, which only rules by Prometheus have."""

    endpoint = models.ForeignKey(Endpoint, on_delete=models.CASCADE, related_name="rules")
    metric = models.CharField(max_length=32, choices=metric_choices)
    query = models.CharField(max_length=1000, blank=True, default="", db_default="")
    value = models.FloatField(null=True, blank=True)
    value_at = models.DateTimeField(null=True, blank=True)
    trouble = MessageField(blank=True, default="", db_default="")
    up_over = models.FloatField(null=True, blank=True)
    down_under = models.FloatField(null=True, blank=True)
    step = models.PositiveSmallIntegerField(default=1, validators=[MinValueValidator(1)])
    is_active = models.BooleanField(default=True)
    created_at = models.DateTimeField(default=timezone.now)

    class Meta:
        ordering = ["pk"]

    def __str__(self) -> str:
        return f"{self.metric} of {self.endpoint_id}"


class EndpointToken(models.Model):
    """What lets a caller send requests. Its text is shown once; only its digest is kept. ``opens_all``: to every
    endpoint of this one's owner."""

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    endpoint = models.ForeignKey(Endpoint, on_delete=models.CASCADE, related_name="tokens")
    name = models.CharField(max_length=64)
    digest = models.CharField(max_length=64, unique=True)
    hint = models.CharField(max_length=8)
    per_minute = models.PositiveIntegerField(default=0, help_text="The most requests per minute; 0: unlimited.")
    opens_all = models.BooleanField(
        default=False, db_default=False, help_text="On: the token opens every endpoint of its owner."
    )
    expires_at = models.DateTimeField(null=True, blank=True)
    revoked_at = models.DateTimeField(null=True, blank=True)
    created_by = models.ForeignKey(settings.AUTH_USER_MODEL, null=True, on_delete=models.SET_NULL, related_name="+")
    created_at = models.DateTimeField(default=timezone.now)

    objects = EndpointTokenQuerySet.as_manager()

    class Meta:
        ordering = ["-created_at"]

    def __str__(self) -> str:
        return self.name


class EndpointNotice(models.Model):
    """A notification of an endpoint's owner, at most one of each kind."""

    class Kind(models.TextChoices):
        """What happened."""

        UNAVAILABLE = "unavailable", "unavailable"
        BACKING_OFF = "backing-off", "backing off"
        ROLLED_BACK = "rolled-back", "rolled back"
        UNUSED = "unused", "unused"

    endpoint = models.ForeignKey("serving.Endpoint", on_delete=models.CASCADE, related_name="notices", db_index=False)
    owner = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="+")
    kind = models.CharField(max_length=16, choices=Kind)
    message = MessageField(blank=True)
    created_at = models.DateTimeField(default=timezone.now)
    mailed_at = models.DateTimeField(null=True, blank=True)
    seen_at = models.DateTimeField(null=True, blank=True, help_text="When the owner saw it under the bell.")
    cleared_at = models.DateTimeField(null=True, blank=True, help_text="When the owner dismissed it.")

    class Meta:
        ordering = ["-created_at", "-pk"]
        constraints = [
            models.UniqueConstraint(fields=["endpoint", "kind"], name="notice_once_per_endpoint_and_kind"),
        ]

    def __str__(self) -> str:
        return f"{self.kind} {self.endpoint_id}"
