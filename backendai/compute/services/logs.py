"""Output of ended kernels."""

from __future__ import annotations

import gzip
from uuid import UUID

from django.utils import timezone

from backendai.cluster.models import Agent
from backendai.compute.models import Kernel, KernelLog
from backendai.core.errors import NotFound, UserError

LARGEST = 4 * 2**20


def save_log(agent: Agent, kernel_id: UUID, generation: int, content: bytes, *, truncated: bool) -> None:
    """Store the end of a kernel's output. Repeats are allowed; an older generation does not replace a newer one."""
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


def saved_log(kernel: Kernel) -> tuple[bytes, bool] | None:
    """Return the stored output and whether its beginning was cut off; None if nothing is stored."""
    log = KernelLog.objects.filter(kernel=kernel).first()
    return (gzip.decompress(bytes(log.content)), log.is_truncated) if log else None
