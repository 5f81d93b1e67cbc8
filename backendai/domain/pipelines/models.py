"""Runs of arrays and pipelines: their steps, the elements of each step, and every try of an element.

Only ``moves`` writes ``Run.status`` and ``Task.state``.
"""

from __future__ import annotations

import uuid

from django.conf import settings
from django.db import models
from django.db.models import Q
from django.utils import timezone

from backendai.base.core.messages import Message
from backendai.domain.accounts.models import Project
from backendai.domain.activity.message_field import MessageField
from backendai.domain.compute.models import ComputeSession
from backendai.domain.pipelines.querysets import RunQuerySet


class Status(models.TextChoices):
    """How far a run is; the same words as ``RunStatus`` of the scheduler."""

    RUNNING = "RUNNING", Message("running")
    PAUSED = "PAUSED", Message("paused")
    SUCCEEDED = "SUCCEEDED", Message("succeeded")
    FAILED = "FAILED", Message("failed")
    CANCELLED = "CANCELLED", Message("cancelled")


class State(models.TextChoices):
    """How far an element is; the same words as ``TaskState`` of the scheduler."""

    WAITING = "WAITING", Message("waiting")
    RELEASED = "RELEASED", Message("launched")
    SUCCEEDED = "SUCCEEDED", Message("succeeded")
    FAILED = "FAILED", Message("failed")
    SKIPPED = "SKIPPED", Message("skipped")
    CANCELLED = "CANCELLED", Message("cancelled")


class Run(models.Model):
    """One run of a document. ``version`` grows with whatever a decision made earlier does not know of."""

    class Kind(models.TextChoices):
        ARRAY = "array", Message("array")
        PIPELINE = "pipeline", Message("pipeline")

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    name = models.CharField(max_length=40)
    kind = models.CharField(max_length=8, choices=Kind)
    owner = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="runs", db_index=False)
    project = models.ForeignKey(Project, on_delete=models.PROTECT, related_name="runs")
    status = models.CharField(max_length=16, choices=Status, default=Status.RUNNING)
    text = models.TextField(help_text="The document as sent, without secret values.")
    template = models.CharField(max_length=128, blank=True, help_text="The version of the template; empty: none.")
    digest = models.CharField(max_length=64)
    parameters = models.JSONField(default=dict)
    size = models.PositiveIntegerField(help_text="Number of elements of all steps.")
    at_once = models.PositiveIntegerField(default=0, help_text="The most concurrent sessions; 0: no limit.")
    on_failure = models.CharField(max_length=8, default="continue")
    workspace = models.JSONField(default=dict, help_text="The folder for the output of steps; empty: none.")
    message = MessageField(blank=True, help_text="Why the run waits, or ended as it did.")
    version = models.PositiveBigIntegerField(default=0)
    idempotency_key = models.CharField(max_length=128, null=True, blank=True, editable=False)  # noqa: DJ001  (null: no key; unique)
    created_at = models.DateTimeField(default=timezone.now)
    ended_at = models.DateTimeField(null=True, blank=True, help_text="When its last element ended.")
    seen_at = models.DateTimeField(null=True, blank=True, help_text="When its owner saw its end under the bell.")
    cleared_at = models.DateTimeField(null=True, blank=True, help_text="When its owner dismissed the notification.")
    mailed_at = models.DateTimeField(null=True, blank=True, editable=False)

    objects = RunQuerySet.as_manager()

    class Meta:
        ordering = ["-created_at", "-id"]
        indexes = [
            models.Index(fields=["owner", "-created_at"], name="run_of_owner"),
            models.Index(fields=["created_at"], condition=Q(ended_at=None), name="run_unfinished"),
        ]
        constraints = [
            models.UniqueConstraint(
                fields=["owner", "idempotency_key"],
                condition=Q(idempotency_key__isnull=False),
                name="run_once_per_idempotency_key",
            )
        ]

    def __str__(self) -> str:
        return self.name

    @property
    def is_over(self) -> bool:
        """Whether it has its last status."""
        return self.status in (Status.SUCCEEDED, Status.FAILED, Status.CANCELLED)


class Step(models.Model):
    """One step of a run: a launch request for each of its elements. ``secrets``: values of its variables, sealed while
    the step can still launch something."""

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    run = models.ForeignKey(Run, on_delete=models.CASCADE, related_name="steps", db_index=False)
    name = models.CharField(max_length=32)
    place = models.PositiveIntegerField(help_text="Its position in the document, from 0.")
    request = models.JSONField(editable=False, help_text="The launch request of its elements, without secret values.")
    secrets = models.JSONField(default=dict, editable=False)
    size = models.PositiveIntegerField()
    values = models.JSONField(default=list, help_text="Variables of each element by its position; empty: none.")
    at_once = models.PositiveIntegerField(default=0)
    probe = models.PositiveIntegerField(default=0)
    give_up_after = models.PositiveIntegerField(default=0)
    retry = models.JSONField(default=dict)
    is_finally = models.BooleanField(default=False)
    message = MessageField(blank=True, help_text="Why none of its elements can be launched now.")

    class Meta:
        ordering = ["place"]
        constraints = [models.UniqueConstraint(fields=["run", "name"], name="step_once_per_run")]

    def __str__(self) -> str:
        return self.name


class Edge(models.Model):
    """That a step waits for another of its run."""

    step = models.ForeignKey(Step, on_delete=models.CASCADE, related_name="edges", db_index=False)
    on = models.ForeignKey(Step, on_delete=models.CASCADE, related_name="+")
    when = models.CharField(max_length=8)

    class Meta:
        constraints = [models.UniqueConstraint(fields=["step", "on"], name="edge_once")]

    def __str__(self) -> str:
        return f"{self.on_id} → {self.step_id}: {self.when}"


class Task(models.Model):
    """One element of a step. ``session``: of its newest attempt."""

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    step = models.ForeignKey(Step, on_delete=models.CASCADE, related_name="tasks", db_index=False)
    place = models.PositiveIntegerField(help_text="Its position in the step, from 0.")
    index = models.PositiveIntegerField(help_text="Its number for programs.")
    state = models.CharField(max_length=16, choices=State, default=State.WAITING)
    attempt = models.PositiveIntegerField(default=0)
    session = models.OneToOneField(ComputeSession, null=True, on_delete=models.SET_NULL, related_name="run_task")
    code = models.CharField(max_length=64, blank=True, help_text="Code of the reason for its state.")
    cause = models.CharField(max_length=64, blank=True, help_text="The step that caused its state.")
    retry_at = models.DateTimeField(null=True, blank=True)
    growths = models.PositiveSmallIntegerField(default=0, help_text="How many times its request was increased.")
    is_excused = models.BooleanField(
        default=False, help_text="Ignored, as somebody has retried other elements since its failure."
    )
    ended_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        ordering = ["place"]
        indexes = [models.Index(fields=["step", "state", "place"], name="task_state_of_step")]
        constraints = [models.UniqueConstraint(fields=["step", "index"], name="task_once_per_step")]

    def __str__(self) -> str:
        return f"{self.step_id} {self.index}"


class Attempt(models.Model):
    """One try of an element, with its session."""

    task = models.ForeignKey(Task, on_delete=models.CASCADE, related_name="attempts", db_index=False)
    number = models.PositiveIntegerField()
    session = models.OneToOneField(ComputeSession, null=True, on_delete=models.SET_NULL, related_name="run_attempt")
    created_at = models.DateTimeField(default=timezone.now)

    class Meta:
        ordering = ["number"]
        constraints = [models.UniqueConstraint(fields=["task", "number"], name="attempt_once_per_task")]

    def __str__(self) -> str:
        return f"{self.task_id} {self.number}"
