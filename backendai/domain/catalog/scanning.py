"""Scans a registry: adds its images to the catalogue, and updates the digests of known ones."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import datetime
from uuid import UUID

from django.db import transaction

from backendai.base.core.errors import UserError
from backendai.base.core.image_names import parse_image_name
from backendai.base.core.messages import Message
from backendai.base.core.names import architecture_name
from backendai.base.wire.images import OWNER_LABEL
from backendai.domain.activity.jobs import finish_job, report_progress, stop_job
from backendai.domain.activity.models import BackgroundJob
from backendai.domain.catalog.images import free_name
from backendai.domain.catalog.models import Image, Registry
from backendai.domain.catalog.registries import SCAN_JOB
from backendai.domain.catalog.registry_access import client_of
from backendai.domain.catalog.registry_client import FoundImage, RegistryClient, RegistryError, Unreachable
from backendai.domain.catalog.services import take_over

MOST_REPOSITORIES, MOST_TAGS, MOST_IMAGES = 2000, 200, 5000
_MOST_FAULTS = 50
_FIX = Message("Check the registry's address, account and additional hosts.")
_FIX_UNREACHABLE = Message(
    "Check the registry's address, its certificate, and whether the portal's machine may connect to it."
)
Clock = Callable[[], datetime]


@dataclass(slots=True)
class _Tally:
    seen: int = 0
    new: int = 0
    changed: int = 0
    faults: list[tuple[str, str]] = field(default_factory=list)

    def words(self) -> str:
        """The result of the scan in one sentence."""
        failed = Message(", {number} could not be read", number=len(self.faults)) if self.faults else ""
        return Message(
            "{seen} images, {new} of them new, {changed} with another digest{failed}.",
            seen=self.seen,
            new=self.new,
            changed=self.changed,
            failed=failed,
        )

    def result(self) -> dict[str, object]:
        """Return the counts of seen, new and changed images, and the images that could not be read."""
        parts = [{"name": name, "ok": False, "message": text} for name, text in self.faults]
        return {"seen": self.seen, "new": self.new, "changed": self.changed, "parts": parts}


def scan(job_id: UUID, clock: Clock) -> None:
    """Run a waiting scan and save its result in the job. Does nothing if another worker has started it."""
    if not _claim(job_id, clock()):
        return
    job = BackgroundJob.objects.get(pk=job_id)
    registry = Registry.objects.filter(name=job.subject).first()
    if registry is None:
        finish_job(job_id, message=Message("The registry no longer exists."), now=clock(), failed=True)
        return
    tally = _Tally()
    try:
        finished = _go_through(registry, job_id, tally, clock)
    except RegistryError as error:
        fix = _FIX_UNREACHABLE if isinstance(error, Unreachable) else _FIX
        finish_job(job_id, message=error.message, now=clock(), failed=True, fix=fix, result=tally.result())
        return
    if not finished:
        stop_job(
            job_id, message=Message("Stopped: {message}", message=tally.words()), now=clock(), result=tally.result()
        )
        return
    Registry.objects.filter(pk=registry.pk).update(scanned_at=clock())
    finish_job(job_id, message=tally.words(), now=clock(), result=tally.result())


def waiting_scans() -> list[UUID]:
    """Return the scans that no worker has started, because their hints were lost."""
    jobs = BackgroundJob.objects.running().filter(kind=SCAN_JOB, claimed_at=None)
    return list(jobs.values_list("pk", flat=True))


def _claim(job_id: UUID, now: datetime) -> bool:
    waiting = BackgroundJob.objects.running().filter(pk=job_id, kind=SCAN_JOB, claimed_at=None)
    return waiting.update(message=Message("Listing the repositories."), claimed_at=now, updated_at=now) > 0


def _go_through(registry: Registry, job_id: UUID, tally: _Tally, clock: Clock) -> bool:
    """Read every tag of the registry; returns False if the job was cancelled."""
    client = client_of(registry)
    for repository, tag in _tags(registry, client, tally):
        message = Message("Reading {repository}:{tag}.", repository=repository, tag=tag)
        if not report_progress(job_id, None, message, now=clock(), done=tally.seen):
            return False
        try:
            found = client.look_at(repository, tag)
            _take_in(registry, found, tally)
        except (RegistryError, UserError) as error:
            if len(tally.faults) < _MOST_FAULTS:
                tally.faults.append((f"{repository}:{tag}"[:255], error.message[:300]))
        tally.seen += 1
        if tally.seen >= MOST_IMAGES:
            tally.faults.append(
                (registry.name, Message("Only the first {most_images} images were scanned.", most_images=MOST_IMAGES))
            )
            break
    return True


def _tags(registry: Registry, client: RegistryClient, tally: _Tally) -> Iterator[tuple[str, str]]:
    for repository in _repositories(registry, client):
        try:
            for number, tag in enumerate(client.tags(repository)):
                if number >= MOST_TAGS:
                    tally.faults.append(
                        (repository, Message("Only the first {most_tags} tags were scanned.", most_tags=MOST_TAGS))
                    )
                    break
                yield repository, tag
        except RegistryError as error:
            tally.faults.append((repository[:255], error.message[:300]))


def _repositories(registry: Registry, client: RegistryClient) -> Iterator[str]:
    named, projects = registry.repositories.split(), registry.projects.split()
    if named:
        names: Iterator[str] = iter(named)
    elif registry.kind == Registry.Kind.HARBOR and projects:
        names = (name for project in projects for name in client.harbor_repositories(project))
    else:
        names = client.repositories()
    for number, name in enumerate(names):
        if number >= MOST_REPOSITORIES:
            return
        if not projects or any(name.startswith(f"{project}/") for project in projects):
            yield name


def _take_in(registry: Registry, found: FoundImage, tally: _Tally) -> None:
    host = registry.host
    reference = f"{host}/{found.repository}:{found.tag}"
    if OWNER_LABEL in found.labels:  # made of a session: in the catalogue already, or deleted by its owner
        return
    if len(reference) > 255:
        raise UserError("Its name is longer than 255 characters.", code="invalid-image-name")
    parse_image_name(reference)
    with transaction.atomic():
        image: Image | None = Image.objects.filter(reference=reference).first()
        if image is None:
            image = Image(name=free_name(reference), reference=reference, is_enabled=registry.enables_new)
            tally.new += 1
        elif image.digest != found.digest:
            tally.changed += 1
        image.registry, image.digest, image.size_bytes = registry, found.digest, found.size_bytes
        image.architecture = architecture_name(found.architecture)
        image.save()
        if found.labels and not image.labels:  # later, an administrator's word counts
            take_over(image, found.labels, found.architecture)
