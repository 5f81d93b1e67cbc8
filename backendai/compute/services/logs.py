"""Output of ended kernels."""

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
from backendai.wire.bundles import BundledLog

LARGEST = 4 * 2**20


def save_log(agent: Agent, kernel_id: UUID, generation: int, content: bytes, *, truncated: bool) -> None:
    """Store the end of a kernel's output, replacing earlier output. Raises UserError above ``LARGEST`` bytes, NotFound
    unless the kernel is on this agent in this generation."""
    if len(content) > LARGEST:
        raise UserError("A log may have at most {largest} bytes.", largest=LARGEST, code="too-long")
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


def save_logs(agent: Agent, logs: Sequence[BundledLog], *, now: datetime) -> list[bool]:
    """Store the ends of many kernels' outputs, in two statements. Returns for each log whether its kernel is on this
    agent in the log's generation; others are not stored."""
    if not logs:
        return []
    packed = {log.kernel_id: (log, gzip.compress(log.content, 5)) for log in logs}
    rows = Kernel.objects.filter(pk__in=among(list(packed)), agent=agent).order_by()
    here = dict(rows.values_list("pk", "generation"))
    KernelLog.objects.bulk_create(
        [
            KernelLog(
                kernel_id=log.kernel_id,
                content=content,
                size=len(log.content),
                is_truncated=log.truncated,
                saved_at=now,
            )
            for log, content in packed.values()
            if here.get(log.kernel_id) == log.generation
        ],
        update_conflicts=True,
        unique_fields=["kernel"],
        update_fields=["content", "size", "is_truncated", "saved_at"],
    )
    return [here.get(log.kernel_id) == log.generation for log in logs]


def saved_log(kernel: Kernel) -> tuple[bytes, bool] | None:
    """Return the stored output and whether its beginning was cut off; None if nothing is stored."""
    log = KernelLog.objects.filter(kernel=kernel).first()
    return (gzip.decompress(bytes(log.content)), log.is_truncated) if log else None
