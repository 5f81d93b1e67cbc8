"""The ends of stored logs for pages, and why nothing is stored of a kernel."""

from __future__ import annotations

import gzip
import re
from collections.abc import Collection, Sequence
from datetime import datetime
from uuid import UUID

from django.conf import settings
from django.db.models import Sum

from backendai.base.core.messages import Message
from backendai.domain.compute.models import ComputeSession, Kernel, KernelLog
from backendai.domain.compute.services.records.logs import LARGEST
from backendai.domain.compute.status import TERMINAL, Result, Status

_MOST_BYTES = 4_000
_FEW_LINES = 8
_OWNER = "kernel__session__owner"
EMPTY = Message("The program printed nothing.")
_EMPTY_OR_DELETED = Message(
    "The program printed nothing, or its log was deleted: the logs of its owner have reached their limit."
)
# Colours, cursor movements and titles: sequences for a terminal, which a page would show as rubbish.
_SEQUENCES = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[@-Z\\^_])")


def ends_of_logs(session_ids: Collection[UUID]) -> dict[UUID, str]:
    """Return the end of the stored log of each session's main kernel; one query. Without output: an empty text."""
    rows = KernelLog.objects.filter(kernel__session__in=list(session_ids), kernel__rank=0).order_by()
    return {session: _end_of(content) for session, content in rows.values_list("kernel__session", "content")}


def last_lines(session: ComputeSession, kernels: Sequence[Kernel]) -> str:
    """Return the last lines of the kernel that failed first, of a session that failed; one query, none for others."""
    has_failed = session.status == Status.ERROR or session.result == Result.FAILED
    if not has_failed or not kernels:
        return ""
    first = str(session.status_data.get("kernel", ""))
    failed = next((kernel for kernel in kernels if str(kernel.pk) == first), kernels[0])
    log = KernelLog.objects.filter(kernel=failed).first()
    return "\n".join(_end_of(log.content).split("\n")[-_FEW_LINES:]) if log else ""


def why_no_logs(kernels: Collection[Kernel], now: datetime) -> dict[UUID, Message]:
    """Return for each of these kernels, of which no log is stored, why. Sessions must be loaded; one query where a
    program may have printed nothing."""
    found = {kernel.pk: _why_no_log(kernel, now) for kernel in kernels}
    silent = {kernel.pk: kernel.session.owner_id for kernel in kernels if found[kernel.pk] is None}
    full = _owners_at_limit(set(silent.values())) if silent else set()
    for pk, owner in silent.items():
        found[pk] = _EMPTY_OR_DELETED if owner in full else EMPTY
    return {pk: why for pk, why in found.items() if why}


def _why_no_log(kernel: Kernel, now: datetime) -> Message | None:
    """Return why no log of a kernel can be stored; None if its program may have printed nothing."""
    if kernel.started_at is None:
        return Message("The session never ran, so there is no log.")
    if settings.KEEP_LOGS and kernel.ended_at and kernel.ended_at < now - settings.KEEP_LOGS:
        return Message("Its log was deleted {days} days after the end.", days=settings.KEEP_LOGS.days)
    return Message("Its log could not be read when it ended.") if kernel.exit_code is None else None


def _owners_at_limit(owners: Collection[UUID]) -> set[UUID]:
    """Return the owners of whom logs may have been deleted: their logs are at most one log below the limit."""
    most = settings.LOG_BYTES_PER_OWNER
    if not most:
        return set()
    rows = KernelLog.objects.filter(**{f"{_OWNER}__in": list(owners), "kernel__session__status__in": sorted(TERMINAL)})
    sums = rows.order_by().values_list(_OWNER).annotate(total=Sum("size"))
    return {owner for owner, total in sums if total > most - LARGEST}


def _end_of(content: bytes | memoryview) -> str:
    """Return the end of a packed log as a terminal shows it: of lines that were overwritten only what stands last."""
    text = gzip.decompress(bytes(content))[-_MOST_BYTES:].decode(errors="replace")
    lines = _SEQUENCES.sub("", text).split("\n")
    return "\n".join(line.rstrip("\r").rpartition("\r")[2] for line in lines).strip("\n")
