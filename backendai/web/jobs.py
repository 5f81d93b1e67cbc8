"""Background jobs in words."""

from __future__ import annotations

from backendai.activity.models import BackgroundJob

_KINDS = {
    "image.build": "Building image",
    "image.pull": "Putting image on agents",
    "registry.scan": "Looking through registry",
}


def title_of(job: BackgroundJob) -> str:
    """Return what a job is about: ``Building image local/python:latest``."""
    return f"{_KINDS.get(job.kind, job.kind)} {job.subject}"


def percent_of(job: BackgroundJob) -> int | None:
    """Return how far it is, 0 to 100; None when that is not known."""
    return None if job.share is None else int(100 * job.share)


def counted(job: BackgroundJob) -> str:
    """Return how many units are done of how many: ``3 of 12 images``; empty when nothing is counted."""
    if not job.unit or not (job.done or job.total):
        return ""
    of = f" of {job.total}" if job.total else ""
    return f"{job.done}{of} {job.unit}"
