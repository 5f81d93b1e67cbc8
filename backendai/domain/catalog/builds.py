"""Stores the builds of the platform's own images: requests, tries and the time of the next try.

``ops.run.image_builds`` runs the builds on the machine with the container engine; it reads and writes these rows.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

from django.db import transaction
from django.db.models import QuerySet
from django.utils.dateparse import parse_datetime

from backendai.base.core.errors import Conflict, UserError
from backendai.base.core.messages import Message
from backendai.domain.accounts.models import User
from backendai.domain.activity.jobs import finish_job, refuse_second, start_job
from backendai.domain.activity.models import BackgroundJob
from backendai.domain.activity.services import audit
from backendai.domain.catalog.models import Image
from backendai.domain.catalog.services import BUILD_JOB
from backendai.domain.cluster.models import PassLease

WATCH_LEASE = "image-builds"
ASKED = Message("Waiting for the builder.")
STOPPED = "stopped"
_LONGEST_STEP = timedelta(hours=1)  # that says nothing: a big layer over a slow line
# A cause outside of the image may be gone at any moment, and a look costs seconds. A step of the image itself that
# failed will mostly fail again, at the cost of a whole build.
_OUTSIDE = frozenset({
    "no-network", "disk-full", "docker-missing", "docker-unreachable", "buildkit-missing", "debootstrap-missing",
    "keyring-missing", "root-needed", "no-answer", STOPPED,
})  # fmt: skip
_FIRST_PAUSE, _LONGEST_PAUSE = timedelta(minutes=1), timedelta(minutes=15)
_FIRST_LONG_PAUSE, _LONGEST_LONG_PAUSE = timedelta(minutes=15), timedelta(hours=6)


def pause_after(code: str, tries: int) -> timedelta:
    """Return the pause after this many failed tries in a row; ``code`` is the error of the newest."""
    first, most = (_FIRST_PAUSE, _LONGEST_PAUSE) if code in _OUTSIDE else (_FIRST_LONG_PAUSE, _LONGEST_LONG_PAUSE)
    return min(most, first * 2 ** min(tries - 1, 10))


def request_build(user: User, image: Image, *, now: datetime) -> BackgroundJob:
    """Request a build that starts within seconds; return its job.

    Raises UserError for an image that is not built here, and Conflict while a build runs or if no builder runs.
    """
    if not image.is_built_here:
        raise UserError("{image} comes from a registry and is not built here.", image=image.name, code="not-built-here")
    with transaction.atomic():
        refuse_second(BUILD_JOB, image.reference)
        if not _has_builder(now):
            text = Message("No builder runs. Start bin/up on a machine with Docker, or run bin/build-images there.")
            raise Conflict(text, code="no-builder")
        audit(user.pk, "image.build", "image", [image.pk], reference=image.reference)
        return start_job(BUILD_JOB, image.reference, ASKED, now=now, owner_id=user.pk, silence_limit=_LONGEST_STEP)


def retry_build(user: User, job: BackgroundJob, *, now: datetime) -> BackgroundJob:
    """Retry a failed build; return the new job.

    Raises Conflict unless the job is the image's newest build and failed.
    """
    image = Image.objects.kept().filter(reference=job.subject, is_built_here=True).first()
    if image is None or not failed_builds().filter(pk=job.pk).exists():
        raise Conflict(
            "Only the newest build of an image, when it failed, can be retried.", code="nothing-to-try-again"
        )
    return request_build(user, image, now=now)


def failed_builds() -> QuerySet[BackgroundJob]:
    """Return the newest build job of each image, if it failed or was cancelled."""
    return BackgroundJob.objects.newest_failed(BUILD_JOB)


def asked_builds() -> list[BackgroundJob]:
    """Return the requested builds that no builder has started, the oldest first."""
    return list(BackgroundJob.objects.running().filter(kind=BUILD_JOB, claimed_at=None).order_by("created_at"))


def begin_build(image: Image, asked: BackgroundJob | None, *, now: datetime) -> BackgroundJob:
    """Start a try of a build; return its job.

    ``asked`` is the requested job; without one, earlier jobs that nobody requested are deleted. Raises Conflict if the
    requested job has ended, or another builder started it.
    """
    message = Message("Building image {image}.", image=image.name)
    earlier = BackgroundJob.objects.filter(kind=BUILD_JOB, subject=image.reference).order_by("-created_at")
    if asked is not None:
        mine = BackgroundJob.objects.running().filter(pk=asked.pk, claimed_at=None)
        if not mine.update(message=message, claimed_at=now, updated_at=now):
            raise Conflict("Another builder took the build, or it is over.", code="job-over")
        asked.refresh_from_db()
        return asked
    with transaction.atomic():
        last = earlier.first()
        has_failed = last is not None and last.status == BackgroundJob.Status.FAILED
        tries = 1 + int(last.result.get("tries", 1)) if last is not None and has_failed else 1
        earlier.filter(owner=None).exclude(status=BackgroundJob.Status.RUNNING).delete()
        job = start_job(BUILD_JOB, image.reference, message, now=now, silence_limit=_LONGEST_STEP)
        BackgroundJob.objects.filter(pk=job.pk).update(result={"tries": tries}, claimed_at=now)
        job.result = {"tries": tries}
    return job


def build_failed(
    job: BackgroundJob, code: str, sentence: str, fix: str, *, may_run_natively: bool, now: datetime
) -> None:
    """Close the job of a failed try, with the time of the next try."""
    tries = int(job.result.get("tries", 1))
    due = now + pause_after(code, tries)
    result = {"code": code, "tries": tries, "next_at": due.isoformat(), "may_run_natively": may_run_natively}
    finish_job(job.pk, message=sentence, now=now, failed=True, fix=fix, result=result)


def next_try_of(job: BackgroundJob) -> datetime | None:
    """Return the time at which a failed build is retried automatically, or None."""
    said = job.result.get("next_at")
    return parse_datetime(said) if job.status == BackgroundJob.Status.FAILED and isinstance(said, str) else None


def is_due(job: BackgroundJob | None, *, now: datetime, is_first_look: bool) -> bool:
    """Return whether to build a missing image now; ``job`` is its newest build.

    A builder that has just started tries every image, as the cause of a failure may be gone.
    """
    if job is None or is_first_look:
        return True
    if job.status == BackgroundJob.Status.DONE:  # missing all the same: removed, or the catalogue names another
        return job.finished_at is None or job.finished_at <= now - _LONGEST_PAUSE
    if job.status == BackgroundJob.Status.FAILED:
        due: Any = next_try_of(job)
        return due is None or due <= now
    return False  # it goes on elsewhere, or was cancelled: then somebody asks for the next one


def _has_builder(now: datetime) -> bool:
    lease = PassLease.objects.filter(pk=WATCH_LEASE, until__gt=now).exclude(owner="").exists()
    return lease or BackgroundJob.objects.running().filter(kind=BUILD_JOB).exclude(claimed_at=None).exists()
