"""The output of kernels that have ended."""

from __future__ import annotations

import gzip
from collections.abc import Sequence
from datetime import datetime
from uuid import UUID

from django.utils import timezone

from backendai.cluster.models import Agent
from backendai.compute.models import Kernel, KernelLog
from backendai.compute.services.bulk import among
from backendai.core.errors import NotFound, UserError
from backendai.wire.messages import KernelLogTail

LARGEST = 4 * 2**20


def save_log(agent: Agent, kernel_id: UUID, generation: int, content: bytes, *, truncated: bool) -> None:
    """Keep the end of a kernel's output; repeated is fine, an older generation's does not replace a newer one."""
    if len(content) > LARGEST:
        raise UserError(f"A log may have at most {LARGEST} bytes.", code="too-long")
    kernel = Kernel.objects.filter(pk=kernel_id, agent=agent).first()
    if kernel is None or kernel.generation != generation:
        raise NotFound("This kernel is not on this agent.")
    KernelLog.objects.update_or_create(
        kernel=kernel,
        defaults={
            "content": gzip.compress(content, 5),
            "size": len(content),
            "is_truncated": truncated,
            "saved_at": timezone.now(),
        },
    )


def save_logs(tails: Sequence[tuple[Agent, KernelLogTail]], *, now: datetime) -> None:
    """Keep the ends of many kernels' outputs, in two statements; those of foreign kernels and of older generations are
    passed over."""
    told = {tail.kernel_id: (agent, tail) for agent, tail in tails}
    if not told:
        return
    kernels = Kernel.objects.filter(pk__in=among(list(told))).order_by()
    rows = []
    for pk, agent_id, generation in kernels.values_list("pk", "agent_id", "generation"):
        agent, tail = told[pk]
        if agent_id == agent.pk and generation == tail.generation:
            content = tail.text.encode()
            packed = gzip.compress(content, 5)
            rows.append(
                KernelLog(kernel_id=pk, content=packed, size=len(content), is_truncated=tail.truncated, saved_at=now)
            )
    KernelLog.objects.bulk_create(
        rows,
        update_conflicts=True,
        unique_fields=["kernel"],
        update_fields=["content", "size", "is_truncated", "saved_at"],
    )


def saved_log(kernel: Kernel) -> tuple[bytes, bool] | None:
    """Return the kept output and whether its beginning was cut off; None when nothing was kept."""
    log = KernelLog.objects.filter(kernel=kernel).first()
    return (gzip.decompress(bytes(log.content)), log.is_truncated) if log else None
