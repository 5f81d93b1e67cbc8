"""Stores and reads the output of ended kernels."""

from __future__ import annotations

import gzip
from collections.abc import Mapping, Sequence
from datetime import datetime
from uuid import UUID

from django.utils import timezone

from backendai.base.core.errors import NotFound, UserError
from backendai.base.db.bulk import among
from backendai.base.wire.bundles import BundledLog
from backendai.domain.cluster.models import Agent
from backendai.domain.compute.models import EarlierLog, Kernel, KernelLog

LARGEST = 4 * 2**20
MOST_EARLIER = 10


def save_log(agent: Agent, kernel_id: UUID, generation: int, content: bytes, *, truncated: bool) -> None:
    """Store the last output of a kernel. The output of an earlier start is kept beside it. Raises UserError above
    ``LARGEST`` bytes, NotFound unless this generation of the kernel is on this agent."""
    if len(content) > LARGEST:
        raise UserError("A log may have at most {largest} bytes.", largest=LARGEST, code="too-long")
    log = BundledLog.model_construct(kernel_id=kernel_id, generation=generation, content=content, truncated=truncated)
    if save_logs(agent, [log], now=timezone.now()) == [False]:
        raise NotFound("This kernel is not on this agent.")


def save_logs(agent: Agent, logs: Sequence[BundledLog], *, now: datetime) -> list[bool]:
    """Store the last outputs of many kernels. Returns for each log whether its generation of the kernel is on this
    agent; others are not stored.

    Three statements; more if kernels were started before.
    """
    if not logs:
        return []
    packed = {log.kernel_id: (log, gzip.compress(log.content, 5)) for log in logs}
    rows = Kernel.objects.filter(pk__in=among(list(packed)), agent=agent).order_by()
    here = dict(rows.values_list("pk", "generation"))
    _keep_earlier({log.kernel_id: log.generation for log in logs if here.get(log.kernel_id) == log.generation})
    KernelLog.objects.bulk_create(
        [
            KernelLog(
                kernel_id=log.kernel_id,
                generation=log.generation,
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
        update_fields=["generation", "content", "size", "is_truncated", "saved_at"],
    )
    return [here.get(log.kernel_id) == log.generation for log in logs]


def saved_log(kernel: Kernel, generation: int | None = None) -> tuple[bytes, bool] | None:
    """Return the stored output of one start of a kernel, and whether earlier output was cut off. ``generation``: the
    start (None: the newest). None if nothing is stored."""
    log: KernelLog | EarlierLog | None = KernelLog.objects.filter(kernel=kernel).first()
    if generation is not None and (log is None or log.generation != generation):
        log = EarlierLog.objects.filter(kernel=kernel, generation=generation).first()
    return (gzip.decompress(bytes(log.content)), log.is_truncated) if log else None


def earlier_logs(kernels: Sequence[Kernel]) -> list[EarlierLog]:
    """Return the outputs of earlier starts without their contents, sorted by kernel and start. One query; none if every
    kernel was started once."""
    again = [kernel.pk for kernel in kernels if kernel.generation > 1]
    if not again:
        return []
    rows = EarlierLog.objects.filter(kernel__in=again).select_related("kernel").defer("content")
    return list(rows.order_by("kernel__rank", "generation"))


def _keep_earlier(generations: Mapping[UUID, int]) -> None:
    """Keep the outputs of earlier starts that newer ones are about to replace: the newest ``MOST_EARLIER`` of each
    kernel. One query if there are none."""
    found = KernelLog.objects.filter(pk__in=among(list(generations)), generation__gt=0).defer("content")
    old = [log for log in found.order_by() if log.generation < generations[log.kernel_id]] if generations else []
    if not old:
        return
    same = ("kernel_id", "generation", "content", "size", "is_truncated", "saved_at")
    rows = [EarlierLog(**{name: getattr(log, name) for name in same}) for log in old]
    EarlierLog.objects.bulk_create(rows, ignore_conflicts=True)
    for log in old:
        EarlierLog.objects.filter(kernel=log.kernel_id, generation__lte=log.generation - MOST_EARLIER).delete()
