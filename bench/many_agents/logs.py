"""The ends of many kernels' outputs, kept in two statements."""

from __future__ import annotations

import gzip
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from backendai.base.db.bulk import among
from backendai.domain.cluster.models import Agent
from backendai.domain.compute.models import Kernel, KernelLog
from bench.many_agents.messages import KernelLogTail


@dataclass(frozen=True, slots=True)
class PackedLog:
    """The end of a kernel's output as it is kept, and which node says it of which generation."""

    agent: Agent
    tail: KernelLogTail
    content: bytes
    size: int


def pack_logs(tails: Sequence[tuple[Agent, KernelLogTail]]) -> list[PackedLog]:
    """Return the outputs as they are kept: that takes its time, which no transaction should."""
    texts = [(agent, tail, tail.text.encode()) for agent, tail in tails]
    return [PackedLog(agent, tail, gzip.compress(text, 5), len(text)) for agent, tail, text in texts]


def save_logs(logs: Sequence[PackedLog], *, now: datetime) -> None:
    """Keep the ends of many kernels' outputs, in two statements; those of foreign kernels and of older generations are
    passed over."""
    told = {log.tail.kernel_id: log for log in logs}
    if not told:
        return
    kernels = Kernel.objects.filter(pk__in=among(list(told))).order_by()
    rows = []
    for pk, agent_id, generation in kernels.values_list("pk", "agent_id", "generation"):
        log = told[pk]
        if agent_id == log.agent.pk and generation == log.tail.generation:
            is_cut = log.tail.truncated
            rows.append(KernelLog(kernel_id=pk, content=log.content, size=log.size, is_truncated=is_cut, saved_at=now))
    KernelLog.objects.bulk_create(
        rows,
        update_conflicts=True,
        unique_fields=["kernel"],
        update_fields=["content", "size", "is_truncated", "saved_at"],
    )
