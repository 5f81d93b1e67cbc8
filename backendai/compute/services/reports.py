"""What nodes say about kernels, carried into the database. Stale words (an older generation) change nothing."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from django.db import transaction
from django.utils import timezone

from backendai.cluster.models import Agent
from backendai.compute.models import ComputeSession, Kernel
from backendai.compute.services.follow import follow
from backendai.compute.services.moves import Why, move, move_kernels, touch
from backendai.compute.status import NO_IMAGE, RETRIABLE, STARTING, TERMINAL, Outcome, Phase, SessionType, Status
from backendai.core.errors import NotFound
from backendai.wire.broker import hint_on_commit
from backendai.wire.messages import KernelReport, KernelState
from backendai.wire.queues import CONTROL_QUEUE

_RAN_OUT = "exited"  # the node's word for "the main process ended by itself"


def kernel_reported(agent: Agent, report: KernelReport, *, now: datetime | None = None) -> bool:
    """Apply a node's report and return whether it was still wanted; False tells the node to remove the container.

    Raises NotFound for a kernel that is not this node's: a node may speak of its own kernels only.
    """
    now = now or timezone.now()
    with transaction.atomic():
        kernel = (
            Kernel.objects.select_related("session", "session__resource_group", "session__image")
            .filter(pk=report.kernel_id)
            .first()
        )
        if kernel is None or kernel.agent_id != agent.pk:
            raise NotFound("This kernel is not on this agent.")
        if report.generation != kernel.generation:
            return False
        if report.state == KernelState.TERMINATED:
            return _ended(kernel, report, now)
        return _advanced(kernel, report, now)


def _advanced(kernel: Kernel, report: KernelReport, now: datetime) -> bool:
    to = Status(report.state.value)
    if kernel.status not in STARTING | {Status.RUNNING}:
        return False
    if kernel.status == to:
        _note_progress(kernel, report)
        return True
    columns: dict[str, Any] = {"progress": report.progress, "status_message": report.message}
    if to == Status.RUNNING:
        columns |= {"container_id": report.container_id, "started_at": now}
    moved = move_kernels([kernel.pk], to, now=now, **columns)
    if not moved:
        # A late word of an earlier step is no reason to remove the container.
        return Kernel.objects.filter(pk=kernel.pk, status__in=STARTING | {Status.RUNNING}).exists()
    follow([kernel.session_id], now=now)
    return True


def _note_progress(kernel: Kernel, report: KernelReport) -> None:
    if report.progress != kernel.progress or report.message != kernel.status_message:
        Kernel.objects.filter(pk=kernel.pk, status=kernel.status).update(
            progress=report.progress, status_message=report.message[:500]
        )
        touch([kernel.session_id])


def _ended(kernel: Kernel, report: KernelReport, now: datetime) -> bool:
    if kernel.status in TERMINAL:
        return True
    session: ComputeSession = kernel.session
    if _may_retry(kernel, session, report):
        _retry(kernel, session, report, now)
        return True
    reason, message = _reason(kernel, session, report)
    # A kernel that was told to end keeps the reason it was told.
    told = kernel.status == Status.TERMINATING
    move_kernels(
        [kernel.pk],
        Status.TERMINATED,
        reason="" if told else reason,
        message=message,
        now=now,
        exit_code=report.exit_code,
        is_unconfirmed=False,
    )
    follow([session.pk], now=now)
    return True


def _reason(kernel: Kernel, session: ComputeSession, report: KernelReport) -> tuple[str, str]:
    if report.reason != _RAN_OUT:
        return report.reason or "self-terminated", report.message
    if session.session_type != SessionType.BATCH:
        return "self-terminated", f"The main program of {kernel.hostname} ended with exit code {report.exit_code}."
    if report.exit_code == 0:
        return "task-finished", ""
    return "task-failed", f"The batch program ended with exit code {report.exit_code}."


def _may_retry(kernel: Kernel, session: ComputeSession, report: KernelReport) -> bool:
    """Another try is safe when nothing of the session can run any more: this was its only kernel."""
    return (
        kernel.status in STARTING
        and session.status in STARTING
        and (report.reason in RETRIABLE or _may_be_elsewhere(session, report))
        and session.cluster_size == 1
        and session.retries < session.resource_group.max_retries
    )


def _may_be_elsewhere(session: ComputeSession, report: KernelReport) -> bool:
    """An image that is made on the nodes may be missing on one and there on the next."""
    return session.image.is_built_here and report.reason in NO_IMAGE


def _retry(kernel: Kernel, session: ComputeSession, report: KernelReport, now: datetime) -> None:
    move_kernels([kernel.pk], Status.PENDING, reason=report.reason, message=report.message, now=now)
    tries = f"try {session.retries + 1} of {session.resource_group.max_retries + 1}"
    why = Why(
        Phase.START,
        report.reason,
        f"{report.message} ({tries})".strip(),
        outcome=Outcome.NEED_RETRY,
    )
    avoid = [*session.avoid_agents, str(kernel.agent_id)]
    move([session.pk], Status.PENDING, why, now=now, retries=session.retries + 1, attempts=0, avoid_agents=avoid)
    hint_on_commit("controller.schedule_group", session.resource_group_id, queue=CONTROL_QUEUE)
