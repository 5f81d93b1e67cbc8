"""Statuses of compute sessions and kernels, the moves between them, and the reasons that explain them.

Sessions and kernels bear the same names. ``docs/architecture.md`` draws this table.
"""

from __future__ import annotations

from django.db import models


class Status(models.TextChoices):
    """Where a compute session or a kernel is in its life."""

    PENDING = "PENDING", "pending"
    SCHEDULED = "SCHEDULED", "scheduled"
    PREPARING = "PREPARING", "preparing"
    PULLING = "PULLING", "pulling image"
    CREATING = "CREATING", "creating"
    RUNNING = "RUNNING", "running"
    TERMINATING = "TERMINATING", "terminating"
    TERMINATED = "TERMINATED", "terminated"
    CANCELLED = "CANCELLED", "cancelled"
    ERROR = "ERROR", "error"


class SessionType(models.TextChoices):
    """What a session is for."""

    INTERACTIVE = "interactive", "interactive"
    BATCH = "batch", "batch"


class ClusterMode(models.TextChoices):
    """Where the kernels of one session lie."""

    SINGLE_NODE = "single-node", "all on one agent"
    MULTI_NODE = "multi-node", "on any agents"


class Placement(models.TextChoices):
    """How the sessions of one launch lie on the agents."""

    SPREAD = "spread", "on different agents, if they can be had"
    PACK = "pack", "on few agents"


class Result(models.TextChoices):
    """How a batch session's main program did."""

    UNDEFINED = "UNDEFINED", "undefined"
    SUCCESS = "SUCCESS", "success"
    FAILED = "FAILED", "failed"


class Outcome(models.TextChoices):
    """The result of one step in the scheduling history."""

    SUCCESS = "SUCCESS", "success"
    FAILURE = "FAILURE", "failure"
    STALE = "STALE", "stale"
    NEED_RETRY = "NEED_RETRY", "need retry"
    EXPIRED = "EXPIRED", "expired"
    GIVE_UP = "GIVE_UP", "give up"
    SKIPPED = "SKIPPED", "skipped"


class Phase(models.TextChoices):
    """Which part of the platform wrote a row of the scheduling history."""

    SCHEDULE = "schedule", "schedule"
    PRECONDITION = "precondition", "precondition (image)"
    START = "start", "start"
    RUN = "run", "run"
    TERMINATE = "terminate", "terminate"
    SWEEP = "sweep", "sweep"
    REPAIR = "repair", "repair"


_S = Status

STARTING = frozenset({_S.SCHEDULED, _S.PREPARING, _S.PULLING, _S.CREATING})
PLACED = STARTING | {_S.RUNNING, _S.TERMINATING}  # holds slots in the ledger
TERMINAL = frozenset({_S.TERMINATED, _S.CANCELLED, _S.ERROR})
LIVE = frozenset(_S) - TERMINAL

SESSION_MOVES: dict[Status, frozenset[Status]] = {
    _S.PENDING: frozenset({_S.SCHEDULED, _S.CANCELLED}),
    _S.SCHEDULED: frozenset({_S.PREPARING, _S.PULLING, _S.CREATING, _S.RUNNING, _S.PENDING, _S.TERMINATING}),
    _S.PREPARING: frozenset({_S.PULLING, _S.CREATING, _S.RUNNING, _S.PENDING, _S.TERMINATING}),
    _S.PULLING: frozenset({_S.CREATING, _S.RUNNING, _S.PENDING, _S.TERMINATING}),
    _S.CREATING: frozenset({_S.RUNNING, _S.PENDING, _S.TERMINATING}),
    _S.RUNNING: frozenset({_S.TERMINATING, _S.PENDING}),  # back to the queue: a batch program that asked for it
    _S.TERMINATING: frozenset({_S.TERMINATED, _S.CANCELLED, _S.ERROR}),
    _S.TERMINATED: frozenset(),
    _S.CANCELLED: frozenset(),
    _S.ERROR: frozenset(),
}

# A kernel ends when its node says so, wherever it was: the node's word is the end of the container. Once all kernels of
# a session that never ran have ended, the whole session may start again.
KERNEL_MOVES: dict[Status, frozenset[Status]] = {
    status: targets | ({_S.TERMINATED, _S.ERROR} if status in PLACED else frozenset())
    for status, targets in SESSION_MOVES.items()
} | {
    _S.RUNNING: frozenset({_S.TERMINATING, _S.TERMINATED, _S.ERROR}),
    _S.TERMINATED: frozenset({_S.PENDING}),
}

# Reasons whose fault is the platform's or the image's: a session that ends so is in ERROR, not TERMINATED.
FAULTS = frozenset(
    {
        "image-not-found",
        "registry-unreachable",
        "registry-denied",
        "pull-failed",
        "pull-broken-off",
        "pull-timeout",
        "scratch-failed",
        "network-pool-exhausted",
        "device-lost",
        "accelerator-runtime-missing",
        "accelerator-refused",
        "name-taken",
        "wrong-deployment",
        "failed-to-start",
        "create-timeout",
        "start-timeout",
        "container-missing",
        "sibling-failed",
        "agent-lost",
        "agent-terminated",
        "backend-error",
    }
)

FINISHED = "task-finished"  # the command of a batch session ended with exit code 0

# The node is gone, or was emptied: a batch session that asked for it runs again elsewhere.
LOSSES = frozenset({"agent-lost", "agent-terminated", "agent-drained"})

# Reasons worth another try on another agent before the session is given up.
RETRIABLE = frozenset(
    {
        "pull-broken-off",
        "pull-timeout",
        "scratch-failed",
        "network-pool-exhausted",
        "device-lost",
        "accelerator-runtime-missing",
        "accelerator-refused",
        "failed-to-start",
        "create-timeout",
        "start-timeout",
        "sibling-failed",
        "backend-error",
        *LOSSES,
    }
)

# An idle checker ended it, after a warning.
IDLE_REASONS = frozenset({"idle-timeout", "idle-utilization", "idle-session-lifetime"})

# The node has no way to the image.
NO_IMAGE = frozenset({"image-not-found", "registry-unreachable", "registry-denied"})

REASON_TEXTS: dict[str, str] = {
    "user-requested": "Ended by its owner.",
    "admin-requested": "Ended by an administrator.",
    "force-terminated": "Ended by force.",
    "self-terminated": "The main program ended by itself.",
    "task-finished": "The batch program finished.",
    "task-failed": "The batch program failed.",
    "out-of-memory": "It used more memory than it had asked for.",
    "image-not-found": "The image is neither on the node nor in its registry.",
    "registry-unreachable": "The image is not on the node, and its registry cannot be reached.",
    "registry-denied": "The image is not on the node, and its registry does not let the platform in.",
    "pull-failed": "The image could not be fetched.",
    "pull-broken-off": "Fetching the image was broken off.",
    "scratch-failed": "The node could not make its home folder.",
    "network-pool-exhausted": "The node has no free network addresses.",
    "device-lost": "A device that it was given failed before it started.",
    "accelerator-runtime-missing": "The node cannot give GPUs to containers.",
    "accelerator-refused": "NVIDIA's runtime on the node refused its GPUs.",
    "name-taken": "Another container on the node has its name.",
    "wrong-deployment": "The node belongs to another platform.",
    "failed-to-start": "The node could not start it.",
    "create-timeout": "Starting it took too long.",
    "pull-timeout": "Fetching the image took too long.",
    "start-timeout": "The node did not start it in time.",
    "sibling-failed": "Another kernel of the session did not start.",
    "pending-timeout": "It waited for longer than its resource group allows.",
    "gave-up-scheduling": "It was tried as often as its resource group allows.",
    "dependency-failed": "A session on which it depends ended without success.",
    "task-timeout": "The batch program ran for longer than it was given.",
    "idle-timeout": "Nobody had used it for longer than its resource group allows.",
    "idle-utilization": "It used less of what it had than its resource group asks for.",
    "idle-session-lifetime": "It ran for as long as an idle checker allows.",
    "session-lifetime": "It ran for as long as its policy allows.",
    "container-missing": "Its container vanished from the node.",
    "agent-lost": "Its node has not answered for too long.",
    "agent-terminated": "Its node was declared gone for good.",
    "agent-drained": "Its node was emptied, and the time for that was over.",
    "agent-stopped": "Its node's agent was stopped, and native processes end with it.",
    "scratch-full": "It wrote more to its home folder than the limit allows.",
    "layer-full": "It wrote more outside of its home folder than the limit allows.",
}


def sources_of(target: Status, moves: dict[Status, frozenset[Status]]) -> list[Status]:
    """Return the statuses from which a move to ``target`` is allowed."""
    return [status for status, targets in moves.items() if target in targets]
