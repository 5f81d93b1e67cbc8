"""Writing the audit trail and the progress of background work."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any
from uuid import UUID

from django.db import transaction
from django.utils import timezone

from backendai.activity.models import AuditEntry, BackgroundJob


def audit(actor_id: UUID | None, action: str, target_type: str, target_ids: Iterable[Any], **details: Any) -> None:
    """Write one entry per target, in the caller's transaction."""
    AuditEntry.objects.bulk_create(
        AuditEntry(actor_id=actor_id, action=action, target_type=target_type, target_id=str(target), details=details)
        for target in target_ids
    )


def start_job(kind: str, subject: str, message: str = "") -> BackgroundJob:
    """Return a new running job; an older running one of the same kind and subject is closed as failed."""
    with transaction.atomic():
        BackgroundJob.objects.filter(kind=kind, subject=subject, status=BackgroundJob.Status.RUNNING).update(
            status=BackgroundJob.Status.FAILED, message="It was cut short and started anew."
        )
        return BackgroundJob.objects.create(kind=kind, subject=subject, message=message)


def report_progress(job_id: UUID, progress: float | None, message: str) -> None:
    """Write how far a running job is (0–1, None: unknown)."""
    BackgroundJob.objects.filter(pk=job_id).update(progress=progress, message=message[:500], updated_at=timezone.now())


def finish_job(job_id: UUID, *, message: str, failed: bool = False, fix: str = "") -> None:
    """Close a job; ``fix`` says what would mend a failure."""
    status = BackgroundJob.Status.FAILED if failed else BackgroundJob.Status.DONE
    BackgroundJob.objects.filter(pk=job_id).update(
        status=status,
        message=message[:500],
        fix=fix[:500],
        progress=None if failed else 1.0,
        updated_at=timezone.now(),
    )


def newest_jobs(kind: str, subjects: Iterable[str]) -> dict[str, BackgroundJob]:
    """Return the newest job of this kind for each of the subjects that has one, in one query."""
    jobs = BackgroundJob.objects.filter(kind=kind, subject__in=list(subjects)).order_by("created_at")
    return {job.subject: job for job in jobs}
