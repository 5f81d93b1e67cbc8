"""Builds of images on this machine, for people who wait for one."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from django.db.models import F, QuerySet

from backendai.base.db.per_request import once
from backendai.base.wire.capabilities import Capability
from backendai.domain.accounts.models import User
from backendai.domain.activity.jobs import newest_jobs
from backendai.domain.activity.models import BackgroundJob
from backendai.domain.catalog.models import Image, ImageOnAgent
from backendai.domain.catalog.services import BUILD_JOB
from backendai.domain.cluster.capabilities import reported
from backendai.domain.cluster.models import Agent
from backendai.domain.cluster.native_sessions import runs_natively


def _open(user: Any) -> QuerySet[Any, Any]:
    return Image.objects.usable_by(user).annotate(owner_email=F("owner__email"))


@dataclass(frozen=True, slots=True)
class Build:
    """An image that no agent has yet: the progress of its build, or its error with the remedy.

    ``is_native``: meanwhile sessions run without the image.
    """

    image: Image
    progress: float | None
    message: str
    failed: bool
    fix: str
    is_native: bool = False

    @property
    def percent(self) -> int | None:
        """The progress from 0 to 100, or None if it is unknown."""
        return percent_of(self.progress)


def percent_of(progress: float | None) -> int | None:
    """Return a progress of 0 to 1 in percent, or None if it is unknown."""
    return None if progress is None else int(100 * min(1.0, max(0.0, progress)))


def images_open(user: User) -> Sequence[Image]:
    """Return the images that the user may start in some project, by name, with their owners.

    Queried once for each request.
    """
    return once(("images-open", user.pk), lambda: list(_open(user)))


def builds_for(user: User) -> list[Build]:
    """Return the running or failed builds of images that the user may start and no agent has."""
    return builds_of(images_open(user))


def builds_of(images: Iterable[Image]) -> list[Build]:
    """Return the running or failed builds of those images that no agent has."""
    made_here = {image.reference: image for image in images if image.is_built_here}
    jobs = newest_jobs(BUILD_JOB, made_here) if made_here else {}
    open_jobs = {name: job for name, job in jobs.items() if job.status != BackgroundJob.Status.DONE}
    if not open_jobs:
        return []
    there = set(ImageOnAgent.objects.filter(reference__in=open_jobs).values_list("reference", flat=True))
    missing = {name: job for name, job in open_jobs.items() if name not in there}
    is_native = bool(missing) and (runs_natively() or _has_no_containers())
    return [_build(made_here[name], job, is_native) for name, job in missing.items()]


def build_by_image(builds: Iterable[Build]) -> dict[UUID, Build]:
    """Return the builds by the id of their image."""
    return {build.image.pk: build for build in builds}


def _has_no_containers() -> bool:
    """Return whether agents answer, all of which run sessions as native processes; one query."""
    backends = set(Agent.objects.answering().order_by().values_list("backend", flat=True).distinct())
    return bool(backends) and all(Capability.NATIVE in reported(None, backend) for backend in backends)


def _build(image: Image, job: BackgroundJob, is_native: bool) -> Build:
    failed = job.status != BackgroundJob.Status.RUNNING
    return Build(image, job.progress, job.message, failed, job.fix, is_native and bool(image.process_reference))
