"""Computes which kernels of a session can start now by its start order, and which kernels end it."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import datetime

from backendai.base.db.bulk import among
from backendai.base.wire.broker.hints import hint_on_commit
from backendai.base.wire.broker.queues import node_queue
from backendai.domain.compute.models.sessions import ComputeSession, Kernel
from backendai.domain.compute.reasons import FINISHED
from backendai.domain.compute.services.life.restarting import Consequence, after_kernel
from backendai.domain.compute.services.requests.order import ALL, MAIN
from backendai.domain.compute.services.status.moves import touch
from backendai.domain.compute.status import STARTING, TERMINAL, Status


def released_now(session: ComputeSession, kernels: Sequence[Kernel]) -> list[Kernel]:
    """Return the held kernels that can start: every kernel of the roles before them is running or has finished."""
    held = [kernel for kernel in kernels if kernel.is_held and kernel.status in STARTING]
    if not held:
        return []
    open_roles = {kernel.role for kernel in kernels if not _is_ready(session, kernel)}
    return [kernel for kernel in held if not open_roles.intersection(kernel.after)]


def release(some: Collection[Kernel], *, now: datetime) -> None:
    """Allow agents to start these held kernels, in the caller's transaction. Their deadline begins now."""
    if not some:
        return
    rows = Kernel.objects.filter(pk__in=among([kernel.pk for kernel in some]), is_held=True)
    rows.update(is_held=False, changed_at=now)
    touch({kernel.session_id for kernel in some})
    for kernel in some:
        if kernel.agent:
            hint_on_commit("node.start_kernel", str(kernel.pk), kernel.generation, queue=node_queue(kernel.agent.name))


def done_with(session: ComputeSession, kernels: Sequence[Kernel]) -> list[Kernel]:
    """Return the kernels whose end ends the session by ``done_when``; empty until all of them have finished.

    If some were successful, only these are returned. Empty for a session that ends with its main kernel.
    """
    if session.done_when in ("", MAIN):
        return []
    deciding = [kernel for kernel in kernels if session.done_when in (ALL, kernel.role)]
    if not deciding or not all(_is_over(session, kernel) for kernel in deciding):
        return []
    return [kernel for kernel in deciding if kernel.status_reason == FINISHED] or deciding


def _is_ready(session: ComputeSession, kernel: Kernel) -> bool:
    return kernel.status == Status.RUNNING or _is_over(session, kernel)


def _is_over(session: ComputeSession, kernel: Kernel) -> bool:
    return kernel.status in TERMINAL and after_kernel(session, kernel) is Consequence.GO_ON
