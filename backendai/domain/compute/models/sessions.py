"""Compute sessions, their kernels, their allocations and their history.

Only ``services.moves`` writes a status, except that ``services.place`` moves kernels from PENDING to SCHEDULED in one
statement, under the same condition. Only ``services.ledger`` writes allocations.
"""

from __future__ import annotations

import uuid
from datetime import datetime
from typing import Any

from django.conf import settings
from django.db import models
from django.db.models import Lookup, Q
from django.utils import timezone

from backendai.base.core.labels import LONGEST_NOTE
from backendai.base.core.messages import Message, shortened
from backendai.base.core.session_kinds import KINDS, USUAL_KIND, SessionKind, kind_choices
from backendai.base.core.slots import Slots
from backendai.domain.accounts.models import Project
from backendai.domain.activity.message_field import MessageField
from backendai.domain.catalog.models import Image
from backendai.domain.cluster.models import Agent, ResourceGroup
from backendai.domain.compute.querysets import AllocationQuerySet, KernelQuerySet, SessionQuerySet
from backendai.domain.compute.reasons import reason_of
from backendai.domain.compute.status import (
    LIVE,
    TERMINAL,
    ClusterMode,
    OnFailure,
    Outcome,
    Phase,
    Placement,
    Result,
    Status,
    When,
)
from backendai.domain.storage.models import Folder
from backendai.domain.storage.status import Rights


class OneOf(Lookup):
    """A lookup for statuses from code, written as literals."""

    lookup_name = "one_of"
    prepare_rhs = False

    def as_sql(self, compiler: Any, connection: Any) -> tuple[str, Any]:
        """Return the SQL condition and its parameters. The statuses have the same order as in the conditions of
        indexes."""
        column, parameters = self.process_lhs(compiler, connection)
        statuses = [f"'{Status(one).value}'" for one in sorted(self.rhs)]
        condition = f"= {statuses[0]}" if len(statuses) == 1 else f"IN ({', '.join(statuses)})"
        return f"{column} {condition}", parameters


_IS_LIVE, _IS_OVER = models.Q(status__in=sorted(LIVE)), models.Q(status__in=sorted(TERMINAL))


class ComputeSession(models.Model):
    """A session that a user has launched: one kernel, or a cluster of kernels."""

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    name = models.CharField(max_length=64)
    # Here and below, a foreign key has no index of its own if another index begins with it, as every placement
    # would have to write both.
    owner = models.ForeignKey(
        settings.AUTH_USER_MODEL, on_delete=models.PROTECT, related_name="compute_sessions", db_index=False
    )
    launched_by = models.ForeignKey(
        settings.AUTH_USER_MODEL,
        on_delete=models.SET_NULL,
        related_name="+",
        null=True,
        blank=True,
        db_index=False,
        help_text="The administrator who launched the session for its owner; empty: the owner.",
    )
    project = models.ForeignKey(Project, on_delete=models.PROTECT, related_name="compute_sessions")
    resource_group = models.ForeignKey(
        ResourceGroup, on_delete=models.PROTECT, related_name="compute_sessions", db_index=False
    )
    # No index: only the deletion of an image searches for sessions by image.
    image = models.ForeignKey(Image, on_delete=models.PROTECT, related_name="compute_sessions", db_index=False)
    image_digest = models.CharField(max_length=128, blank=True, help_text="Digest at the launch; empty: unknown.")
    access_key = models.CharField(max_length=32, blank=True)
    session_type = models.CharField(max_length=16, choices=kind_choices, default=USUAL_KIND.name)
    status = models.CharField(max_length=16, choices=Status, default=Status.PENDING)
    status_reason = models.CharField(max_length=64, blank=True)
    status_message = MessageField(blank=True)
    status_data = models.JSONField(default=dict, blank=True)
    result = models.CharField(max_length=16, choices=Result, default=Result.UNDEFINED)
    priority = models.PositiveSmallIntegerField(default=10)
    owner_priority = models.PositiveSmallIntegerField(
        null=True, editable=False, help_text=Message("The highest priority that its owner may set.")
    )
    slots = models.JSONField(help_text="Amounts of each kernel as decimal strings; if they differ, of the main one.")
    total_slots = models.JSONField(
        null=True, blank=True, editable=False, help_text="Sum of all kernels' amounts; empty: all are equal."
    )
    shm_bytes = models.BigIntegerField(default=64 * 2**20)
    cluster_size = models.PositiveSmallIntegerField(default=1)
    cluster_mode = models.CharField(max_length=16, choices=ClusterMode, default=ClusterMode.SINGLE_NODE)
    cluster_network = models.PositiveIntegerField(
        null=True, blank=True, editable=False, help_text="Number of its network across agents, if it has one."
    )
    environ = models.JSONField(default=dict, blank=True)
    preopen_ports = models.JSONField(default=list, blank=True, help_text="Further ports that appear as apps.")
    startup_command = models.TextField(blank=True)
    file_bytes = models.PositiveIntegerField(
        default=0, help_text=Message("Bytes of the launch's files, including their names.")
    )
    mount_count = models.PositiveSmallIntegerField(
        default=0, editable=False, help_text=Message("Number of its mounts.")
    )
    start_in = models.CharField(
        max_length=255, blank=True, help_text=Message("Working directory of programs; empty: the home.")
    )
    labels = models.JSONField(default=dict, db_default={}, blank=True, help_text=Message("Values of labels by key."))
    note = models.CharField(max_length=LONGEST_NOTE, blank=True, default="", db_default="")
    starts_at = models.DateTimeField(null=True, blank=True)
    batch_timeout = models.DurationField(
        null=True, blank=True, help_text=Message("The longest run of a batch session; empty: unlimited.")
    )
    retry_on_agent_loss = models.BooleanField(default=False, help_text="Run again from the start if its agent is lost.")
    may_be_stopped = models.BooleanField(
        default=False, db_default=False, help_text=Message("Its program can be stopped, and begins again.")
    )
    done_when = models.CharField(
        max_length=16,
        blank=True,
        default="",
        db_default="",
        help_text=Message("Role whose end completes the session, or all; empty: the main kernel's end."),
    )
    designated_agents = models.JSONField(default=list, blank=True, help_text="Ids of the only allowed agents.")
    launch_id = models.UUIDField(
        null=True, blank=True, editable=False, help_text="The same for all sessions of one launch."
    )
    # A plain id, as runs belong to a room above, which finds its sessions from its own rows.
    run_id = models.UUIDField(null=True, blank=True, editable=False, help_text="The run to which the session belongs.")
    placement = models.CharField(max_length=16, choices=Placement, blank=True)
    depends_on = models.ManyToManyField("self", symmetrical=False, blank=True, related_name="dependents")
    depends_when = models.CharField(max_length=8, choices=When, default=When.SUCCESS, db_default="success")
    overtaken_since = models.DateTimeField(null=True, blank=True, editable=False)
    attempts = models.PositiveIntegerField(default=0, help_text="Scheduling tries since the session became pending.")
    queue_position = models.PositiveIntegerField(
        null=True, blank=True, editable=False, help_text="Position in the last pass, while it is pending."
    )
    wait_record = models.UUIDField(
        null=True, editable=False, help_text="The newest history row, if it contains the wait reason."
    )
    wait_digest = models.CharField(max_length=32, blank=True, editable=False, help_text="Digest of the wait reason.")
    avoid_agents = models.JSONField(default=list, blank=True, help_text="Ids of agents on which a start failed.")
    retries = models.PositiveSmallIntegerField(default=0, help_text="Number of failed starts.")
    version = models.PositiveBigIntegerField(default=0)
    idempotency_key = models.CharField(max_length=128, null=True, blank=True)  # noqa: DJ001  (null: no key; unique)
    spec = models.JSONField(default=dict, editable=False, help_text="The launch request, without secret values.")
    request_digest = models.CharField(max_length=64, blank=True, editable=False)
    created_at = models.DateTimeField(default=timezone.now)
    scheduled_at = models.DateTimeField(null=True, blank=True)
    started_at = models.DateTimeField(null=True, blank=True)
    ends_at = models.DateTimeField(null=True, blank=True, help_text="The latest end, which people may move.")
    is_end_moved = models.BooleanField(default=False, db_default=False, editable=False)
    stopped_at = models.DateTimeField(
        null=True, blank=True, editable=False, help_text=Message("When its homes were last stored.")
    )
    resumes = models.PositiveIntegerField(default=0, editable=False, help_text=Message("How often it was resumed."))
    terminating_at = models.DateTimeField(null=True, blank=True)
    ended_at = models.DateTimeField(null=True, blank=True)
    changed_at = models.DateTimeField(default=timezone.now)
    moved_from = models.CharField(max_length=16, blank=True, editable=False)

    objects = SessionQuerySet.as_manager()

    class Meta:
        ordering = ["-created_at", "-id"]
        indexes = [
            models.Index(fields=["owner", "-created_at"]),
            # Never updated; the next two are written when a session ends, and contain the name for searches.
            models.Index(fields=["-created_at", "-id"], name="session_newest"),
            models.Index(fields=["-ended_at", "-id", "name"], condition=_IS_OVER, name="session_last_ended"),
            models.Index(fields=["owner", "-ended_at", "-id", "name"], condition=_IS_OVER, name="session_ended_owner"),
            # Most sessions have ended, and no query searches for these by status.
            models.Index(
                fields=["resource_group", "-priority", "created_at"],
                condition=models.Q(status=Status.PENDING),
                name="session_queue",
            ),
            models.Index(fields=["status"], condition=_IS_LIVE, name="session_live_status"),
            # Lists leave out sessions of runs; this index counts them.
            models.Index(fields=["owner"], condition=models.Q(run_id__isnull=False), name="session_of_run"),
        ]
        constraints = [
            models.UniqueConstraint(
                fields=["owner", "name"], condition=_IS_LIVE, name="session_name_once_per_owner_while_live"
            ),
            models.UniqueConstraint(
                fields=["cluster_network"],
                condition=models.Q(cluster_network__isnull=False, status__in=sorted(LIVE)),
                name="session_cluster_network_once_while_live",
            ),
            models.UniqueConstraint(
                fields=["owner", "idempotency_key"],
                condition=models.Q(idempotency_key__isnull=False),
                name="session_once_per_idempotency_key",
            ),
        ]

    def __str__(self) -> str:
        return self.name

    @property
    def kind(self) -> SessionKind:
        """The features of the session's type."""
        return KINDS[self.session_type]

    @property
    def can_stop(self) -> bool:
        """Whether it can be stopped and resumed while it runs."""
        return self.kind.stops or (self.kind.stops_by_choice and self.may_be_stopped)

    @property
    def kernel_slots(self) -> Slots:
        """The amounts of each kernel; if they differ, of the main kernel."""
        return Slots.parse(self.slots)

    @property
    def total(self) -> Slots:
        """The amounts of all kernels together."""
        return self.kernel_slots * self.cluster_size if self.total_slots is None else Slots.parse(self.total_slots)

    @property
    def is_terminal(self) -> bool:
        """Whether the session has ended."""
        return self.status in TERMINAL

    @property
    def run_ended_at(self) -> datetime | None:
        """When its last run ended; None while it runs or waits."""
        return self.stopped_at if self.status == Status.STOPPED else self.ended_at

    @property
    def is_running(self) -> bool:
        """Whether the session's terminal and apps can be opened."""
        return self.status == Status.RUNNING

    @property
    def reason_text(self) -> str:
        """The reason of the status as a sentence: the stored message, or the text for the reason's code."""
        return self.status_message or reason_of(self.status_reason).text


ComputeSession._meta.get_field("status").register_lookup(OneOf)


class Kernel(models.Model):
    """One container or process of a session. ``generation``: the fencing token, which grows with every placement."""

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    session = models.ForeignKey(ComputeSession, on_delete=models.CASCADE, related_name="kernels", db_index=False)
    role = models.CharField(max_length=16, default="main")
    index = models.PositiveSmallIntegerField(default=1)
    rank = models.PositiveSmallIntegerField(default=0)
    hostname = models.CharField(max_length=63, default="main1")
    status = models.CharField(max_length=16, choices=Status, default=Status.PENDING)
    status_reason = models.CharField(max_length=64, blank=True)
    status_message = MessageField(blank=True)
    progress = models.FloatField(null=True, blank=True)
    fetched_bytes = models.BigIntegerField(null=True, blank=True, help_text="Bytes of the image pulled so far.")
    image_bytes = models.BigIntegerField(null=True, blank=True, help_text="Bytes to pull; may grow during the pull.")
    # No constraint in the database: a placement has just read the agent, and rows of agents are never deleted.
    agent = models.ForeignKey(
        Agent,
        null=True,
        blank=True,
        on_delete=models.PROTECT,
        related_name="kernels",
        db_index=False,
        db_constraint=False,
    )
    generation = models.PositiveIntegerField(default=0)
    container_id = models.CharField(max_length=64, blank=True)
    exit_code = models.IntegerField(null=True, blank=True)
    slots = models.JSONField(help_text="Amounts of this kernel as decimal strings.")
    # The kernel's own values; empty: those of its session.
    image = models.ForeignKey(
        Image, null=True, blank=True, on_delete=models.PROTECT, related_name="kernels", db_index=False
    )
    image_digest = models.CharField(max_length=128, blank=True, help_text="Digest of its own image at the launch.")
    shm_bytes = models.BigIntegerField(null=True, blank=True)
    environ = models.JSONField(default=dict, blank=True, help_text="Environment variables, added to the session's.")
    startup_command = models.TextField(blank=True)
    on_failure = models.CharField(
        max_length=16,
        choices=OnFailure,
        default=OnFailure.END,
        db_default=OnFailure.END,
        help_text=Message("What a failure of the kernel does; empty: it ends the session."),
    )
    after = models.JSONField(
        default=list, db_default=[], editable=False, help_text=Message("Roles that must be ready before it starts.")
    )
    is_held = models.BooleanField(
        default=False, db_default=False, editable=False, help_text=Message("Waiting for the roles in ``after``.")
    )
    ready = models.JSONField(
        default=dict, db_default={}, editable=False, help_text=Message("Readiness check (port, seconds); empty: none.")
    )
    restarts = models.PositiveSmallIntegerField(
        default=0, db_default=0, editable=False, help_text=Message("Number of restarts on its agent.")
    )
    starts_after = models.DateTimeField(
        null=True, editable=False, help_text=Message("The restart waits for this time.")
    )
    devices = models.JSONField(default=dict, blank=True, help_text="By slot and device id, the decimal amount.")
    # Of an earlier start if that was before ``started_at``.
    memory_kills = models.PositiveIntegerField(
        default=0, db_default=0, editable=False, help_text="Programs in it that were ended at the memory limit."
    )
    memory_killed_at = models.DateTimeField(null=True, editable=False, help_text="When that was noticed last.")
    is_unconfirmed = models.BooleanField(default=False, help_text="Its agent has not confirmed its end.")
    forced_at = models.DateTimeField(null=True, blank=True, help_text="When its agent was ordered to kill it at once.")
    steps = models.JSONField(default=list, blank=True, help_text="Completed steps of its start, with times.")
    created_at = models.DateTimeField(default=timezone.now)
    started_at = models.DateTimeField(null=True, blank=True)
    ended_at = models.DateTimeField(null=True, blank=True)
    changed_at = models.DateTimeField(default=timezone.now)
    moved_from = models.CharField(max_length=16, blank=True, editable=False)

    objects = KernelQuerySet.as_manager()

    class Meta:
        ordering = ["rank"]
        indexes = [models.Index(fields=["agent", "status"]), models.Index(fields=["status"])]
        constraints = [models.UniqueConstraint(fields=["session", "rank"], name="kernel_rank_once_per_session")]

    def __str__(self) -> str:
        return f"{self.hostname} of {self.session_id}"

    @property
    def amounts(self) -> Slots:
        """The requested amounts."""
        return Slots.parse(self.slots)

    @property
    def started_image(self) -> Image:
        """The kernel's image: its own, or its session's."""
        return self.image or self.session.image

    @property
    def started_digest(self) -> str:
        """The digest of the kernel's image at the launch; empty if unknown."""
        return self.image_digest if self.image_id else self.session.image_digest

    @property
    def command(self) -> str:
        """The kernel's command: its own, or its session's."""
        return self.startup_command or self.session.startup_command

    @property
    def variables(self) -> dict[str, str]:
        """The environment variables of the session, overridden by the kernel's own variables."""
        return {**self.session.environ, **self.environ}

    @property
    def reason_text(self) -> str:
        """The reason of the status as a sentence: the stored message, or the text for the reason's code."""
        return self.status_message or reason_of(self.status_reason).text


class Allocation(models.Model):
    """An amount of a slot that a kernel holds on an agent. The row exists exactly as long as the kernel is placed and
    live. Use is the sum of rows."""

    # No constraints in the database: the writing transaction has just changed and so locked the kernel's row, and
    # rows of agents are never deleted.
    kernel = models.ForeignKey(
        Kernel, on_delete=models.CASCADE, related_name="allocations", db_index=False, db_constraint=False
    )
    agent = models.ForeignKey(
        Agent, on_delete=models.PROTECT, related_name="allocations", db_index=False, db_constraint=False
    )
    slot = models.CharField(max_length=64)
    amount = models.BigIntegerField(help_text="Thousandths of the slot's unit.")

    objects = AllocationQuerySet.as_manager()

    class Meta:
        indexes = [models.Index(fields=["agent", "slot"])]
        constraints = [models.UniqueConstraint(fields=["kernel", "slot"], name="allocation_once_per_kernel_and_slot")]

    def __str__(self) -> str:
        return f"{self.slot} {self.amount}"


class SchedulingRecord(models.Model):
    """One row of a session's scheduling history. A repeated event increments ``attempts`` instead of adding a row."""

    uid = models.UUIDField(default=uuid.uuid4, unique=True, editable=False)
    # No constraint in the database: the writer of a row has just read or changed the session.
    session = models.ForeignKey(
        ComputeSession, on_delete=models.CASCADE, related_name="records", db_index=False, db_constraint=False
    )
    phase = models.CharField(max_length=32, choices=Phase)
    result = models.CharField(max_length=16, choices=Outcome)
    from_status = models.CharField(max_length=16, blank=True)
    to_status = models.CharField(max_length=16, blank=True)
    attempts = models.PositiveIntegerField(default=1)
    error_code = models.CharField(max_length=64, blank=True)
    message = MessageField(blank=True)
    sub_steps = models.JSONField(default=list, blank=True)
    created_at = models.DateTimeField(default=timezone.now)
    updated_at = models.DateTimeField(default=timezone.now)

    class Meta:
        ordering = ["-updated_at", "-id"]
        indexes = [models.Index(fields=["session", "-id"])]

    def __str__(self) -> str:
        return f"{self.phase} {self.result} {self.from_status} → {self.to_status}"


def history_entry(**fields: Any) -> SchedulingRecord:
    """Return an unsaved history row with its text cut to fit."""
    fields["message"] = shortened(fields.get("message", ""))
    return SchedulingRecord(**fields)


class SessionSshKey(models.Model):
    """An SSH key pair that gives access to one session. The private key is derived from site, session and version at
    each download. Only the fingerprint is stored."""

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    session = models.OneToOneField("compute.ComputeSession", on_delete=models.CASCADE, related_name="ssh_key")
    version = models.PositiveIntegerField(default=1)
    fingerprint = models.CharField(max_length=64, unique=True)
    created_at = models.DateTimeField(default=timezone.now)

    def __str__(self) -> str:
        return f"{self.fingerprint} of {self.session_id}"


class SessionMount(models.Model):
    """A folder that a session mounts, fixed at the launch. ``role``: the role whose kernels mount it (empty: all
    kernels).

    Until ``released_at`` the folder cannot be moved to the trash. The mount is released when every kernel has ended, or
    when the folder was unmounted from the running session, as its owner lost the rights (``cut_at``).
    """

    session = models.ForeignKey("compute.ComputeSession", on_delete=models.CASCADE, related_name="mounts")
    folder = models.ForeignKey(Folder, null=True, on_delete=models.SET_NULL, related_name="mounts")
    folder_name = models.CharField(max_length=64, help_text=Message("The folder's name at the launch."))
    sub_path = models.CharField(max_length=1024, blank=True)
    target = models.CharField(max_length=255, help_text=Message("The mount path: absolute, inside the kernels."))
    rights = models.CharField(max_length=8, choices=Rights)
    role = models.CharField(
        max_length=16, blank=True, help_text=Message("The role whose kernels mount it; empty: all kernels.")
    )
    is_automatic = models.BooleanField(
        default=False, help_text=Message("Mounted without a request, as the name begins with a dot.")
    )
    holds_homes = models.BooleanField(
        default=False, help_text=Message("Not mounted: holds the homes of the stopped session.")
    )
    created_at = models.DateTimeField(default=timezone.now)
    released_at = models.DateTimeField(null=True, blank=True)
    cut_at = models.DateTimeField(
        null=True, blank=True, help_text=Message("When the folder was unmounted from the running session.")
    )

    class Meta:
        ordering = ["session", "target"]
        constraints = [models.UniqueConstraint(fields=["session", "role", "target"], name="mount_target_once_per_role")]
        indexes = [models.Index(fields=["folder"], condition=Q(released_at=None), name="folder_in_use")]

    def __str__(self) -> str:
        return f"{self.session_id}: {self.folder_name} on {self.target}"
