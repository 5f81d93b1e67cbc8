"""Deletes the tags of deleted own images from their registries, with a background job for each.

A registry deletes a whole manifest with all its tags. So a job deletes it only if it is surely the deleted image, and
no image of the catalogue needs it.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta
from uuid import UUID

from django.conf import settings
from django.db.models import F, QuerySet

from backendai.base.core.errors import Conflict, PlatformError
from backendai.base.core.image_names import CUSTOMIZED_TAG, ImageName, parse_image_name
from backendai.base.core.messages import Message
from backendai.base.wire.broker.hints import hint_on_commit
from backendai.base.wire.broker.queues import CONTROL_QUEUE
from backendai.base.wire.images import DEPLOYMENT_LABEL, ID_LABEL
from backendai.domain.accounts.models import User
from backendai.domain.activity.jobs import finish_job, start_job, stop_job
from backendai.domain.activity.models import BackgroundJob
from backendai.domain.activity.services import audit
from backendai.domain.catalog.models import Image, Registry
from backendai.domain.catalog.registries import WAITING
from backendai.domain.catalog.registry_access import client_of
from backendai.domain.catalog.registry_client import DeletesNothing, RegistryClient, RegistryError

TAG_JOB = "image.untag"
_LONGEST = timedelta(hours=12)
_SILENCE = timedelta(hours=1)
PAUSE = timedelta(days=7)
_MOST_AT_ONCE = 100
_AGAIN = Message("Then try again.")
_LET_IT = Message("Allow deletion: a Docker registry needs REGISTRY_STORAGE_DELETE_ENABLED set to true.")
_LOOK = Message("Check the registry's address and account.")
Clock = Callable[[], datetime]


class _UndeletableTag(PlatformError):
    """The tag may not or cannot be deleted from the registry."""

    def __init__(self, message: str, fix: str) -> None:
        super().__init__(message, code="tag-stays")
        self.fix = fix


def start_removal(reference: str, *, now: datetime) -> BackgroundJob:
    """Start a job that deletes this tag of a deleted image from its registry; return it.

    In the caller's transaction.
    """
    job = start_job(TAG_JOB, reference, WAITING, now=now, silence_limit=_SILENCE, longest=_LONGEST)
    hint_on_commit("controller.remove_tags", queue=CONTROL_QUEUE)
    return job


def try_removal_again(user: User, job: BackgroundJob, *, now: datetime) -> BackgroundJob:
    """Start another job for a tag that this job did not delete; return it.

    Raises Conflict unless this is the tag's newest job, and failed or was cancelled.
    """
    is_newest = not BackgroundJob.objects.filter(kind=TAG_JOB, subject=job.subject, created_at__gt=job.created_at)
    if job.kind != TAG_JOB or job.status not in (job.Status.FAILED, job.Status.CANCELLED) or not is_newest:
        raise Conflict(
            "Only the deletion of a tag that is still in its registry can be retried.", code="nothing-to-try-again"
        )
    audit(user.pk, "image.untag", "job", [job.pk], reference=job.subject)
    return start_removal(job.subject, now=now)


def tags_that_stayed() -> QuerySet[BackgroundJob]:
    """Return the newest job of each tag whose deletion from the registry failed."""
    return BackgroundJob.objects.newest_failed(TAG_JOB)


def waiting_removals() -> list[UUID]:
    """Return the deletions that no worker has started, the oldest first."""
    jobs = BackgroundJob.objects.running().filter(kind=TAG_JOB, claimed_at=None)
    return list(jobs.order_by("created_at").values_list("pk", flat=True)[:_MOST_AT_ONCE])


def try_old_ones_again(now: datetime) -> int:
    """Retry deletions that failed some time ago, as the registry may be back.

    Returns 0, as this repairs nothing itself.
    """
    old = tags_that_stayed().filter(finished_at__lt=now - PAUSE).order_by("created_at")
    for subject in list(old.values_list("subject", flat=True)[:_MOST_AT_ONCE]):
        start_removal(subject, now=now)
    return 0


def remove_tag(job_id: UUID, clock: Clock) -> None:
    """Run a waiting deletion and save its result in the job. Does nothing if another worker has started it."""
    waiting = BackgroundJob.objects.running().filter(pk=job_id, kind=TAG_JOB, claimed_at=None)
    now = clock()
    if not waiting.update(message=Message("Asking the registry."), claimed_at=now, updated_at=now):
        return
    job = BackgroundJob.objects.get(pk=job_id)
    if job.cancel_requested_at:
        stop_job(job_id, message=Message("Cancelled: the tag was not deleted."), now=clock())
        return
    try:
        message = _take_out(job.subject)
    except _UndeletableTag as reason:
        finish_job(job_id, message=reason.message, now=clock(), failed=True, fix=reason.fix)
    except RegistryError as error:
        said, now = Message("Tag not deleted: {message}", message=error.message), clock()
        if isinstance(error, DeletesNothing):
            finish_job(job_id, message=said, now=now, failed=True, fix=f"{_LET_IT} {_AGAIN}")
        else:
            finish_job(job_id, message=said, now=now, failed=True, fix=f"{_LOOK} {_AGAIN}")
    else:
        gone = Image.objects.filter(reference=job.subject).exclude(deleted_at=None)
        gone.update(registry=None, digest="")  # no registry has it any more
        finish_job(job_id, message=message, now=clock())


def _take_out(reference: str) -> str:
    """Delete the tag from its registry; return the result as a sentence. Raises _Stays and RegistryError."""
    image = Image.objects.filter(reference=reference).first()
    if image is not None and image.deleted_at is None:
        raise _UndeletableTag(
            Message("Tag not deleted: an image of the catalogue uses it."),
            Message("Remove the image. {again}", again=_AGAIN),
        )
    name = parse_image_name(reference)
    registry = _registry_of(image, name)
    client = client_of(registry, deletes=True)
    digest = client.digest_of(name.repository, name.tag)
    if digest is None:
        return Message("The registry no longer has this tag.")
    _check_that_it_is_it(client, name, digest, image)
    _check_that_no_other_needs_it(client, name, digest, reference)
    client.delete(name.repository, digest)
    return Message("The tag is deleted from the registry; the registry's garbage collection frees its space.")


def _registry_of(image: Image | None, name: ImageName) -> Registry:
    """Return the registry of the tag: the image's own, else one at the same host, preferably one that takes pushes."""
    if image is not None and image.registry is not None:
        return image.registry
    rows = Registry.objects.order_by(F("takes_pushes").desc(), "name")
    found = next((row for row in rows if row.host.lower() == name.registry.lower()), None)
    if found is None:
        raise _UndeletableTag(
            Message("Tag not deleted: no registry is configured for {registry}.", registry=name.registry),
            Message("Add it under Registries. {again}", again=_AGAIN),
        )
    return found


def _check_that_it_is_it(client: RegistryClient, name: ImageName, digest: str, image: Image | None) -> None:
    """Raise _Stays unless the tag still points to the pushed image, by its digest or by its labels."""
    if image is not None and image.digest:
        is_it = image.digest == digest
    else:
        labels = client.look_at(name.repository, name.tag).labels
        key = labels.get(ID_LABEL, "").replace("-", "")
        marked = name.tag.rpartition(CUSTOMIZED_TAG)[2]
        is_it = bool(marked) and key.startswith(marked) and labels.get(DEPLOYMENT_LABEL) == settings.DEPLOYMENT
    if not is_it:
        raise _UndeletableTag(
            Message("Tag not deleted: it now points to a different image."),
            Message("Check the registry, and delete the tag there if nobody needs it."),
        )


def _check_that_no_other_needs_it(client: RegistryClient, name: ImageName, digest: str, reference: str) -> None:
    """Raise _Stays if another image of the catalogue is this manifest, by its digest or its tag."""
    others = Image.objects.kept().exclude(reference=reference)
    by_digest = others.filter(digest=digest).first() or others.filter(reference__endswith=f"@{digest}").first()
    if by_digest is not None:
        raise _needed_by(by_digest)
    unsure = others.filter(reference__startswith=f"{reference.rpartition(':')[0]}:")
    for other in unsure.exclude(is_customized=True, digest__gt=""):  # an own image's tag never moves
        if client.digest_of(name.repository, parse_image_name(other.reference).tag) == digest:
            raise _needed_by(other)


def _needed_by(image: Image) -> _UndeletableTag:
    text = Message("Tag not deleted: {image} has the same content and would be lost.", image=image.name)
    return _UndeletableTag(text, Message("Remove that image first. {again}", again=_AGAIN))
