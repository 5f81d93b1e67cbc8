"""Statuses of sessions and kernels, and the allowed transitions. Sessions and kernels have the same statuses;
``docs/architecture.md`` draws the transitions."""

from __future__ import annotations

from django.db import models

from backendai.base.core.messages import Message


class Status(models.TextChoices):
    """Status of a compute session or a kernel."""

    PENDING = "PENDING", Message("pending")
    SCHEDULED = "SCHEDULED", Message("scheduled")
    PULLING = "PULLING", Message("pulling image")
    CREATING = "CREATING", Message("creating")
    RUNNING = "RUNNING", Message("running")
    STOPPING = "STOPPING", Message("stopping")
    STOPPED = "STOPPED", Message("stopped")
    TERMINATING = "TERMINATING", Message("terminating")
    TERMINATED = "TERMINATED", Message("terminated")
    CANCELLED = "CANCELLED", Message("cancelled")
    ERROR = "ERROR", Message("error")


class ClusterMode(models.TextChoices):
    """The places of a session's kernels: all on one agent, or on any agents."""

    SINGLE_NODE = "single-node", Message("all on one agent")
    MULTI_NODE = "multi-node", Message("on any agents")


class Placement(models.TextChoices):
    """The distribution of the sessions of one launch over agents."""

    SPREAD = "spread", Message("on different agents, if they can be had")
    PACK = "pack", Message("on few agents")


class OnFailure(models.TextChoices):
    """The effect of a failed kernel on its session."""

    END = "end", Message("the session ends")
    TOLERATE = "tolerate", Message("the others go on")
    RESTART = "restart", Message("the kernel starts again")


class Result(models.TextChoices):
    """Result of a batch session's main program."""

    UNDEFINED = "UNDEFINED", Message("undefined")
    SUCCESS = "SUCCESS", Message("success")
    FAILED = "FAILED", Message("failed")


class ShareRight(models.TextChoices):
    """The right to a session of somebody else: reading its pages and its terminal, or also working in it."""

    VIEW = "view", Message("view")
    USE = "use", Message("use")


class When(models.TextChoices):
    """The result that a session requires from the sessions on which it depends."""

    SUCCESS = "success", Message("all succeeded")
    FAILURE = "failure", Message("all ended without success")
    ANY = "any", Message("all ended, no matter how")


class Outcome(models.TextChoices):
    """The result of one step in the scheduling history."""

    SUCCESS = "SUCCESS", Message("success")
    FAILURE = "FAILURE", Message("failure")
    NEED_RETRY = "NEED_RETRY", Message("need retry")
    EXPIRED = "EXPIRED", Message("expired")
    GIVE_UP = "GIVE_UP", Message("give up")
    SKIPPED = "SKIPPED", Message("skipped")


class Phase(models.TextChoices):
    """The phase of a session's life that a history row describes."""

    SCHEDULE = "schedule", Message("schedule")
    PRECONDITION = "precondition", Message("precondition (image)")
    START = "start", Message("start")
    RUN = "run", Message("run")
    TERMINATE = "terminate", Message("terminate")
    SWEEP = "sweep", Message("sweep")
    REPAIR = "repair", Message("repair")


_S = Status

STARTING = frozenset({_S.SCHEDULED, _S.PULLING, _S.CREATING})
PLACED = STARTING | {_S.RUNNING, _S.STOPPING, _S.TERMINATING}  # statuses in which slots are held in the ledger
UNPLACED = frozenset({_S.PENDING, _S.STOPPED})  # live without any slots
TERMINAL = frozenset({_S.TERMINATED, _S.CANCELLED, _S.ERROR})
LIVE = frozenset(_S) - TERMINAL

SESSION_MOVES: dict[Status, frozenset[Status]] = {
    _S.PENDING: frozenset({_S.SCHEDULED, _S.CANCELLED, _S.STOPPED}),  # STOPPED: its stored home waits for another try
    _S.SCHEDULED: frozenset({_S.PULLING, _S.CREATING, _S.RUNNING, _S.PENDING, _S.TERMINATING}),
    _S.PULLING: frozenset({_S.CREATING, _S.RUNNING, _S.PENDING, _S.TERMINATING}),
    _S.CREATING: frozenset({_S.RUNNING, _S.PENDING, _S.TERMINATING}),
    # To the queue only: a batch program whose owner allowed a restart.
    _S.RUNNING: frozenset({_S.STOPPING, _S.TERMINATING, _S.PENDING}),
    _S.STOPPING: frozenset({_S.RUNNING, _S.STOPPED, _S.TERMINATING}),
    _S.STOPPED: frozenset({_S.PENDING, _S.TERMINATED}),
    _S.TERMINATING: frozenset({_S.TERMINATED, _S.CANCELLED, _S.ERROR, _S.STOPPED}),
    _S.TERMINATED: frozenset(),
    _S.CANCELLED: frozenset(),
    _S.ERROR: frozenset(),
}

# A kernel ends in any status when its agent reports the end. After all kernels of a session that never ran have
# ended, the whole session may start again.
KERNEL_MOVES: dict[Status, frozenset[Status]] = {
    status: targets | ({_S.TERMINATED, _S.ERROR} if status in PLACED else frozenset())
    for status, targets in SESSION_MOVES.items()
} | {
    _S.RUNNING: frozenset({_S.TERMINATING, _S.TERMINATED, _S.ERROR}),
    # To the queue with its whole session, or alone again on its agent.
    _S.TERMINATED: frozenset({_S.PENDING, _S.SCHEDULED}),
    _S.CANCELLED: frozenset({_S.PENDING}),  # of a session that is stopped again, as it could not be resumed
    _S.ERROR: frozenset({_S.PENDING}),
}


def sources_of(target: Status, moves: dict[Status, frozenset[Status]]) -> list[Status]:
    """Return the statuses from which a transition to ``target`` is allowed."""
    return [status for status, targets in moves.items() if target in targets]
