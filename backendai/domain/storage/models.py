"""Folders: data that outlives sessions, on named storage hosts."""

from __future__ import annotations

import uuid
from typing import Any

from django.conf import settings
from django.core.validators import MinValueValidator, RegexValidator
from django.db import models
from django.db.models import Q
from django.utils import timezone

from backendai.base.core.messages import Message
from backendai.domain.accounts.models import Project
from backendai.domain.activity.message_field import MessageField
from backendai.domain.activity.models import BackgroundJob
from backendai.domain.cluster.models import Agent
from backendai.domain.storage.querysets import FolderGrantQuerySet, FolderQuerySet, StorageHostQuerySet
from backendai.domain.storage.status import FolderStatus, GrantKind, QuotaMode, Rights, Usage

folder_name_rule = RegexValidator(
    r"^[A-Za-z0-9._][A-Za-z0-9._-]{0,63}\Z",
    Message("A folder name has 1 to 64 letters, digits, '.', '_' or '-', and does not begin with '-'."),
)
host_name_rule = RegexValidator(
    r"^[a-z0-9]([a-z0-9-]{0,30}[a-z0-9])?\Z", Message("A host name has 1 to 32 small letters, digits or '-'.")
)


class StorageHost(models.Model):
    """A named place for folders. Each agent and its file server map the name to a path of their own."""

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    name = models.CharField(max_length=32, unique=True, validators=[host_name_rule])
    title = models.CharField(max_length=128, blank=True)
    address = models.CharField(
        max_length=255, help_text=Message("Address of its file server, such as http://127.0.0.1:8093.")
    )
    public_address = models.CharField(
        max_length=255,
        blank=True,
        help_text=Message("Address of its file server for scripts; empty: only through the portal."),
    )
    is_enabled = models.BooleanField(default=True, help_text=Message("On: new folders can be created here."))
    is_default = models.BooleanField(default=False)
    quota_mode = models.CharField(max_length=16, choices=QuotaMode, default=QuotaMode.MEASURED, editable=False)
    total_bytes = models.BigIntegerField(null=True, blank=True, editable=False)
    free_bytes = models.BigIntegerField(null=True, blank=True, editable=False)
    answered_at = models.DateTimeField(
        null=True, blank=True, editable=False, help_text=Message("When its file server last answered.")
    )
    fault = MessageField(
        blank=True, editable=False, help_text=Message("Why its file server does not work; empty: it works.")
    )
    fault_since = models.DateTimeField(
        null=True, blank=True, editable=False, help_text=Message("When the fault was seen first.")
    )
    unknown_folders = models.JSONField(
        default=list,
        blank=True,
        editable=False,
        help_text=Message("Number of directories without a folder in the database."),
    )
    listed_at = models.DateTimeField(
        null=True, blank=True, editable=False, help_text=Message("When its directories were last listed.")
    )
    created_at = models.DateTimeField(default=timezone.now)

    objects = StorageHostQuerySet.as_manager()

    class Meta:
        ordering = ["name"]
        constraints = [
            models.UniqueConstraint(fields=["is_default"], condition=Q(is_default=True), name="one_default_host")
        ]

    def __str__(self) -> str:
        return self.name

    def save(self, *args: Any, **kwargs: Any) -> None:
        """Save it. Agents that reported a new host before it was here are heard again at their next sync."""
        if self._state.adding:
            Agent.objects.exclude(storage_digest="").update(storage_digest="new-host")
        super().save(*args, **kwargs)

    @property
    def adopt_command(self) -> str:
        """Return the command that adds rows for directories that the database does not know."""
        return f"manage.py adopt_folders {self.name}"


class HostOnAgent(models.Model):
    """Whether kernels of an agent can mount folders of a storage host."""

    host = models.ForeignKey(StorageHost, on_delete=models.CASCADE, related_name="on_agents")
    agent = models.ForeignKey(Agent, on_delete=models.CASCADE, related_name="storage_hosts")
    fault = MessageField(blank=True, help_text=Message("Why kernels cannot mount its folders; empty: they can."))
    can_read_only = models.BooleanField(default=True, help_text=Message("The agent can enforce read-only mounts."))
    can_sub_path = models.BooleanField(default=True)
    free_bytes = models.BigIntegerField(null=True, blank=True)
    reported_at = models.DateTimeField(default=timezone.now)

    class Meta:
        ordering = ["host", "agent"]
        constraints = [models.UniqueConstraint(fields=["host", "agent"], name="storage_host_once_per_agent")]

    def __str__(self) -> str:
        return f"{self.host_id}/{self.agent_id}"


class Folder(models.Model):
    """Data of a user or a project. ``version`` grows with every order to the file server and every launch with it."""

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    name = models.CharField(max_length=64, validators=[folder_name_rule])
    host = models.ForeignKey(StorageHost, on_delete=models.PROTECT, related_name="folders")
    user = models.ForeignKey(
        settings.AUTH_USER_MODEL, null=True, blank=True, on_delete=models.PROTECT, related_name="folders"
    )
    project = models.ForeignKey(Project, null=True, blank=True, on_delete=models.PROTECT, related_name="folders")
    usage = models.CharField(max_length=16, choices=Usage, default=Usage.GENERAL)
    member_rights = models.CharField(
        max_length=8,
        choices=Rights,
        default=Rights.EDIT,
        help_text=Message("Rights of the project's members to a project folder."),
    )
    is_cloneable = models.BooleanField(
        default=False, help_text=Message("On: everyone who can view the folder may clone it.")
    )
    linked_path = models.CharField(
        max_length=255,
        blank=True,
        help_text=Message("An existing path of the host, mounted read-only; empty: an ordinary folder."),
    )
    status = models.CharField(max_length=16, choices=FolderStatus, default=FolderStatus.CREATING, editable=False)
    status_message = MessageField(blank=True, editable=False)
    version = models.PositiveIntegerField(default=1, editable=False)
    limit_bytes = models.BigIntegerField(
        null=True, blank=True, validators=[MinValueValidator(1)], help_text=Message("Limit in bytes; empty: unlimited.")
    )
    used_bytes = models.BigIntegerField(null=True, blank=True, editable=False)
    used_files = models.BigIntegerField(null=True, blank=True, editable=False)
    measured_at = models.DateTimeField(null=True, blank=True, editable=False)
    measure_asked_at = models.DateTimeField(null=True, blank=True, editable=False)
    nearly_full_at = models.DateTimeField(
        null=True, blank=True, editable=False, help_text=Message("When the owner was notified that it is nearly full.")
    )
    needs_push = models.BooleanField(
        default=False, editable=False, help_text=Message("Name, owner or limit are not yet sent to the file server.")
    )
    cloned_from = models.ForeignKey("self", null=True, blank=True, on_delete=models.SET_NULL, related_name="clones")
    created_by = models.ForeignKey(
        settings.AUTH_USER_MODEL, null=True, blank=True, on_delete=models.SET_NULL, related_name="+"
    )
    created_at = models.DateTimeField(default=timezone.now)
    changed_at = models.DateTimeField(default=timezone.now, help_text=Message("When its status last changed."))
    trashed_at = models.DateTimeField(null=True, blank=True, editable=False)

    objects = FolderQuerySet.as_manager()

    class Meta:
        ordering = ["name", "pk"]
        constraints = [
            models.CheckConstraint(
                condition=Q(user__isnull=True, project__isnull=False) | Q(user__isnull=False, project__isnull=True),
                name="folder_has_one_owner",
            ),
            models.UniqueConstraint(
                fields=["user", "name"],
                condition=Q(user__isnull=False, status__in=["CREATING", "READY", "ERROR"]),
                name="folder_name_once_per_user",
            ),
            models.UniqueConstraint(
                fields=["project", "name"],
                condition=Q(project__isnull=False, status__in=["CREATING", "READY", "ERROR"]),
                name="folder_name_once_per_project",
            ),
        ]
        indexes = [
            models.Index(
                fields=["status", "changed_at"],
                condition=Q(status__in=["CREATING", "TRASHED", "DELETING", "ERROR"]),
                name="folder_in_transition",
            )
        ]

    def __str__(self) -> str:
        return self.name

    def save(self, *args: Any, **kwargs: Any) -> None:
        """Save it; raises a ValidationError by field."""
        self.clean_fields(exclude=["host", "user", "project", "cloned_from", "created_by"])
        super().save(*args, **kwargs)


class FolderGrant(models.Model):
    """The rights of one user to a folder that is not theirs. An invitation counts once it is accepted."""

    folder = models.ForeignKey(Folder, on_delete=models.CASCADE, related_name="grants")
    user = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="folder_grants")
    rights = models.CharField(max_length=8, choices=Rights)
    kind = models.CharField(max_length=16, choices=GrantKind, default=GrantKind.INVITATION)
    accepted_at = models.DateTimeField(null=True, blank=True)
    created_by = models.ForeignKey(settings.AUTH_USER_MODEL, null=True, on_delete=models.SET_NULL, related_name="+")
    created_at = models.DateTimeField(default=timezone.now)

    objects = FolderGrantQuerySet.as_manager()

    class Meta:
        ordering = ["folder", "user"]
        constraints = [models.UniqueConstraint(fields=["folder", "user"], name="folder_granted_once")]

    def __str__(self) -> str:
        return f"{self.folder_id}/{self.user_id}: {self.rights}"


class FolderSize(models.Model):
    """How large a folder was on one day."""

    folder = models.ForeignKey(Folder, on_delete=models.CASCADE, related_name="sizes")
    day = models.DateField()
    used_bytes = models.BigIntegerField()
    used_files = models.BigIntegerField()

    class Meta:
        ordering = ["folder", "day"]
        constraints = [models.UniqueConstraint(fields=["folder", "day"], name="folder_measured_once_a_day")]

    def __str__(self) -> str:
        return f"{self.folder_id} {self.day}: {self.used_bytes}"


class FolderFill(models.Model):
    """The copying of files into a new folder. The row is deleted after the last file; ``is_over``: the copy failed for
    good."""

    folder = models.OneToOneField(Folder, on_delete=models.CASCADE, related_name="fill")
    job = models.ForeignKey(BackgroundJob, null=True, on_delete=models.SET_NULL, related_name="+")
    taken_by = models.CharField(max_length=128, blank=True)
    taken_until = models.DateTimeField(null=True, blank=True)
    tries = models.PositiveSmallIntegerField(default=0)
    sent_bytes = models.BigIntegerField(
        default=0, help_text=Message("Bytes copied at the last report of the last worker.")
    )
    is_over = models.BooleanField(default=False)
    created_at = models.DateTimeField(default=timezone.now)

    class Meta:
        ordering = ["created_at", "pk"]

    def __str__(self) -> str:
        return str(self.folder_id)
