"""Audit entries, background jobs, notifications of given access, and users' choices of notifications."""

from __future__ import annotations

import uuid
from datetime import timedelta

from django.conf import settings
from django.db import models
from django.utils import timezone

from backendai.base.core.messages import Message
from backendai.domain.activity.message_field import MessageField
from backendai.domain.activity.querysets import AuditQuerySet, JobQuerySet
from backendai.domain.activity.request_facts import LONGEST_ADDRESS, client_address, request_id

USUAL_SILENCE = timedelta(minutes=10)


class AuditEntry(models.Model):
    """An action of a person or of the platform. Written in the action's transaction and never changed."""

    at = models.DateTimeField(default=timezone.now, db_index=True)
    actor = models.ForeignKey(settings.AUTH_USER_MODEL, null=True, on_delete=models.SET_NULL, related_name="+")
    action = models.CharField(max_length=64)
    target_type = models.CharField(max_length=32)
    target_id = models.CharField(max_length=64)
    details = models.JSONField(default=dict)
    address = models.CharField(max_length=LONGEST_ADDRESS, blank=True, default=client_address, db_default="")
    request_id = models.CharField(max_length=12, blank=True, default=request_id, db_default="")

    objects = AuditQuerySet.as_manager()

    class Meta:
        ordering = ["-at", "-id"]
        verbose_name_plural = Message("audit entries")

    def __str__(self) -> str:
        return f"{self.action} {self.target_type} {self.target_id}"


class BackgroundJob(models.Model):
    """Long work with progress: the build of an image, the scan of a registry, a pull onto many agents.

    ``subject``: what the job is about. ``owner``: who started it (None: the platform itself). The worker reports at
    least every ``silence_limit``; otherwise the repair pass fails the job.
    """

    class Status(models.TextChoices):
        RUNNING = "RUNNING", Message("running")
        DONE = "DONE", Message("done")
        FAILED = "FAILED", Message("failed")
        CANCELLED = "CANCELLED", Message("cancelled")

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    kind = models.CharField(max_length=32)
    subject = models.CharField(max_length=255)
    owner = models.ForeignKey(
        settings.AUTH_USER_MODEL, null=True, blank=True, on_delete=models.SET_NULL, related_name="jobs"
    )
    status = models.CharField(max_length=16, choices=Status, default=Status.RUNNING)
    progress = models.FloatField(null=True, blank=True, help_text="Share from 0 to 1; empty: unknown.")
    done = models.BigIntegerField(default=0, help_text="Number of completed units.")
    total = models.BigIntegerField(null=True, blank=True, help_text="Number of all units; empty: unknown.")
    claimed_at = models.DateTimeField(null=True, blank=True, editable=False, help_text="When a worker claimed the job.")
    unit = models.CharField(max_length=16, blank=True, help_text="Unit of the numbers: images, agents, bytes.")
    message = MessageField(blank=True)
    fix = MessageField(blank=True)
    result = models.JSONField(default=dict, blank=True)
    created_at = models.DateTimeField(default=timezone.now)
    updated_at = models.DateTimeField(default=timezone.now, help_text="When its worker last reported.")
    finished_at = models.DateTimeField(null=True, blank=True)
    deadline_at = models.DateTimeField(
        null=True, blank=True, help_text="The job fails at this time, even if it reports progress."
    )
    silence_limit = models.DurationField(default=USUAL_SILENCE)
    cancel_requested_at = models.DateTimeField(null=True, blank=True)
    seen_at = models.DateTimeField(null=True, blank=True, help_text="When its owner saw the result.")
    cleared_at = models.DateTimeField(null=True, blank=True, help_text="When its owner dismissed it.")

    objects = JobQuerySet.as_manager()

    class Meta:
        ordering = ["-created_at", "-pk"]
        indexes = [
            models.Index(fields=["kind", "subject", "-created_at"]),
            models.Index(fields=["owner", "-created_at"], name="job_of_owner"),
            models.Index(fields=["updated_at"], condition=models.Q(status="RUNNING"), name="job_running"),
        ]

    def __str__(self) -> str:
        return f"{self.kind} {self.subject}: {self.status}"

    @property
    def is_running(self) -> bool:
        """Whether the job has not ended."""
        return self.status == self.Status.RUNNING

    @property
    def is_cancelling(self) -> bool:
        """Whether a user has cancelled the job and its worker has not stopped yet."""
        return self.is_running and self.cancel_requested_at is not None

    @property
    def share(self) -> float | None:
        """The progress from 0 to 1; None if unknown."""
        if self.progress is None and self.total:
            return min(1.0, self.done / self.total)
        return None if self.progress is None else min(1.0, max(0.0, self.progress))


class NoticeChoice(models.Model):
    """The channels that a user chose for notifications of one kind. Without a row the defaults apply."""

    user = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="notice_choices")
    kind = models.CharField(max_length=16)
    card = models.BooleanField(default=True, help_text=Message("Show a card on the open page."))
    bell = models.BooleanField(default=True, help_text=Message("Add an entry under the bell."))
    email = models.BooleanField(default=False, help_text=Message("Send an e-mail, if the site sends mail."))

    class Meta:
        ordering = ["user", "kind"]
        constraints = [models.UniqueConstraint(fields=["user", "kind"], name="notice_choice_once_per_kind")]

    def __str__(self) -> str:
        return f"{self.kind} of {self.user_id}"


class AccessNotice(models.Model):
    """A notification of what somebody else gave a person access to, at most one of each subject.

    ``invitation``: the number of a folder's invitation while it waits for the person's answer.
    """

    owner = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="+", db_index=False)
    subject_type = models.CharField(max_length=16)
    subject_id = models.CharField(max_length=64)
    name = models.CharField(max_length=255)
    message = MessageField()
    invitation = models.BigIntegerField(null=True, blank=True)
    created_at = models.DateTimeField(default=timezone.now, db_index=True)
    seen_at = models.DateTimeField(null=True, blank=True, help_text="When the person saw it under the bell.")
    closed_at = models.DateTimeField(null=True, blank=True, help_text="When the person closed the card.")
    cleared_at = models.DateTimeField(null=True, blank=True, help_text="When the person dismissed it.")
    mailed_at = models.DateTimeField(null=True, blank=True, help_text="When the mail was sent.")

    class Meta:
        ordering = ["-created_at", "-pk"]
        constraints = [
            models.UniqueConstraint(fields=["owner", "subject_type", "subject_id"], name="access_notice_once"),
        ]

    def __str__(self) -> str:
        return f"{self.subject_type} {self.subject_id} to {self.owner_id}"
