"""Starts, updates, finishes and cancels background jobs, and tells workers whether to continue.

Every function changes only running jobs, so a worker that comes back late changes nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from django.db import transaction

from backendai.base.core.durations import describe_duration
from backendai.base.core.errors import Conflict, NotFound
from backendai.base.core.messages import Message, shortened
from backendai.base.wire.broker.hints import hint_on_commit
from backendai.base.wire.broker.queues import CONTROL_QUEUE
from backendai.base.wire.browser import JobEvent, publish_on_commit
from backendai.domain.activity.models import USUAL_SILENCE, BackgroundJob
from backendai.domain.activity.services import audit

KEPT_FOR = timedelta(days=30)
_MOST_AT_ONCE = 500
_RUNNING, _DONE = BackgroundJob.Status.RUNNING, BackgroundJob.Status.DONE
_FAILED, _CANCELLED = BackgroundJob.Status.FAILED, BackgroundJob.Status.CANCELLED


def start_job(
    kind: str,
    subject: str,
    message: str = "",
    *,
    now: datetime,
    owner_id: UUID | None = None,
    total: int | None = None,
    unit: str = "",
    silence_limit: timedelta = USUAL_SILENCE,
    longest: timedelta | None = None,
) -> BackgroundJob:
    """Return a new running job. An older running job of the same kind and subject fails.

    ``longest``: the job fails after this time, even if it reports progress.
    """
    with transaction.atomic():
        older = BackgroundJob.objects.running().filter(kind=kind, subject=subject)
        _close(older, _FAILED, Message("Interrupted and restarted."), now=now)
        job: BackgroundJob = BackgroundJob.objects.create(
            kind=kind,
            subject=subject,
            message=shortened(message),
            owner_id=owner_id,
            total=total,
            unit=unit,
            created_at=now,
            updated_at=now,
            silence_limit=silence_limit,
            deadline_at=now + longest if longest else None,
        )
        _tell([job])
    return job


def refuse_second(kind: str, subject: str) -> None:
    """Raise Conflict while a job of this kind about the same subject is running."""
    other = BackgroundJob.objects.running().filter(kind=kind, subject=subject).first()
    if other:
        raise Conflict(
            "This is already running; wait for its end, or cancel it.", code="job-running", job=str(other.pk)
        )


def report_progress(
    job_id: UUID,
    progress: float | None,
    message: str,
    *,
    now: datetime,
    done: int | None = None,
    total: int | None = None,
) -> bool:
    """Write the progress of a running job (0–1, None: unknown; or in units) and the time of this report. Returns
    whether to continue: False if the job was cancelled or has ended."""
    changes: dict[str, Any] = {"progress": progress, "message": shortened(message), "updated_at": now}
    changes |= {name: value for name, value in (("done", done), ("total", total)) if value is not None}
    with transaction.atomic():
        running = BackgroundJob.objects.running().filter(pk=job_id)
        if not running.update(**changes):
            return False
        job = running.get()
        _tell([job])
    return job.cancel_requested_at is None


def finish_job(
    job_id: UUID,
    *,
    message: str,
    now: datetime,
    failed: bool = False,
    fix: str = "",
    result: Mapping[str, Any] | None = None,
) -> bool:
    """Close a running job. ``fix``: how to repair a failure. Returns whether the job was still running."""
    jobs = BackgroundJob.objects.filter(pk=job_id)
    return _close(jobs, _FAILED if failed else _DONE, message, now=now, fix=fix, result=result) > 0


def stop_job(job_id: UUID, *, message: str, now: datetime, result: Mapping[str, Any] | None = None) -> bool:
    """Close a running job as cancelled, after its worker has stopped. Returns whether the job was still running."""
    return _close(BackgroundJob.objects.filter(pk=job_id), _CANCELLED, message, now=now, result=result) > 0


def cancel_job(user: Any, job_id: UUID, *, now: datetime) -> BackgroundJob:
    """Request the end of a job that the user may see; its worker stops at its next report. A repeated call changes
    nothing.

    Raises NotFound; Conflict if the job has ended.
    """
    with transaction.atomic():
        job: BackgroundJob | None = BackgroundJob.objects.visible_to(user).filter(pk=job_id).first()
        if job is None:
            raise NotFound("Job not found.")
        asked = BackgroundJob.objects.running().filter(pk=job_id, cancel_requested_at=None)
        if asked.update(cancel_requested_at=now):
            audit(user.pk, "job.cancel", "job", [job_id], kind=job.kind, subject=job.subject)
            hint_on_commit("controller.follow_jobs", queue=CONTROL_QUEUE)
        job.refresh_from_db()
        if not job.is_running:
            raise Conflict("The job is over: {status}.", status=job.get_status_display(), code="job-over")
        _tell([job])
    return job


def give_up_jobs(now: datetime) -> int:
    """Fail jobs whose worker was silent for too long, or that took too long, with the reason; returns how many."""
    closed = 0
    for job in list(BackgroundJob.objects.overdue(now)[:_MOST_AT_ONCE]):
        overdue = BackgroundJob.objects.overdue(now).filter(pk=job.pk)
        if job.cancel_requested_at:
            closed += _close(overdue, _CANCELLED, Message("Cancelled (no response from the worker)."), now=now)
        else:
            closed += _close(overdue, _FAILED, _why_given_up(job, now), now=now, fix=Message("Start it again."))
    return closed


def delete_old_jobs(now: datetime) -> int:
    """Delete jobs that ended long ago; returns how many."""
    old = BackgroundJob.objects.exclude(status=_RUNNING).filter(updated_at__lt=now - KEPT_FOR)
    return old.filter(pk__in=list(old.values_list("pk", flat=True)[:_MOST_AT_ONCE])).delete()[0]


def see_jobs(user: Any, *, now: datetime) -> None:
    """Mark the results of the user's jobs as seen."""
    BackgroundJob.objects.in_bell_of(user).unseen().update(seen_at=now)


def clear_jobs(user: Any, *, now: datetime) -> int:
    """Dismiss the user's ended jobs; returns how many."""
    over = BackgroundJob.objects.in_bell_of(user).exclude(status=_RUNNING)
    return over.update(cleared_at=now, seen_at=now)


def newest_jobs(kind: str, subjects: Iterable[str]) -> dict[str, BackgroundJob]:
    """Return the newest job of this kind by subject, without subjects that have none. One query."""
    jobs = BackgroundJob.objects.filter(kind=kind, subject__in=list(subjects)).order_by("created_at")
    return {job.subject: job for job in jobs}


def _close(
    jobs: Any, status: str, message: str, *, now: datetime, fix: str = "", result: Mapping[str, Any] | None = None
) -> int:
    """Close those of the jobs that are running; returns how many. One statement, so of two concurrent calls only the
    first closes a job."""
    changes: dict[str, Any] = {
        "status": status,
        "message": shortened(message),
        "fix": shortened(fix),
        "updated_at": now,
        "finished_at": now,
    }
    changes |= {"progress": 1.0} if status == _DONE else {}
    changes |= {} if result is None else {"result": dict(result)}
    with transaction.atomic():
        ids = list(jobs.running().values_list("pk", flat=True))
        closed: int = BackgroundJob.objects.running().filter(pk__in=ids).update(**changes)
        _tell(BackgroundJob.objects.filter(pk__in=ids))
    return closed


def _why_given_up(job: BackgroundJob, now: datetime) -> str:
    if job.deadline_at and job.deadline_at < now:
        return Message(
            "The job exceeded its time limit of {deadline_at}.",
            deadline_at=describe_duration(job.deadline_at - job.created_at),
        )
    return Message("No progress for {now}; the worker is considered dead.", now=describe_duration(now - job.updated_at))


def _tell(jobs: Iterable[BackgroundJob]) -> None:
    publish_on_commit(
        JobEvent(str(job.pk), str(job.owner_id) if job.owner_id else "", job.kind, job.status) for job in jobs
    )
