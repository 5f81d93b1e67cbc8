"""Makes orders for agents to save or delete images of sessions, and applies the agents' reports."""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime
from uuid import UUID

from django.conf import settings
from django.db import transaction
from django.db.models import Exists, OuterRef, Q, QuerySet

from backendai.base.core.errors import NotFound
from backendai.base.core.image_names import is_digest
from backendai.base.core.messages import Message
from backendai.base.core.slots import format_size
from backendai.base.wire.images import (
    COMMIT,
    DEPLOYMENT_LABEL,
    ID_LABEL,
    NAME_LABEL,
    OWNER_LABEL,
    PUSHING,
    CommitResult,
    CommitSpec,
    RegistryAccess,
)
from backendai.base.wire.node_jobs import JobState, NodeJobReport, NodeJobSpec
from backendai.domain.activity.jobs import finish_job, report_progress
from backendai.domain.activity.models import BackgroundJob
from backendai.domain.activity.services import audit
from backendai.domain.catalog.images import free_name
from backendai.domain.catalog.models import Image, ImageOnAgent
from backendai.domain.catalog.registry_access import push_account_of
from backendai.domain.catalog.tags import start_removal
from backendai.domain.cluster.models import Agent
from backendai.domain.compute.models import ComputeSession, ImageCommit
from backendai.domain.compute.services.images.commits import NOT_OVER, end_commit

_Status = ImageCommit.Status


def commits_wanted() -> QuerySet[ImageCommit]:
    """Return the unfinished orders to save an image whose jobs are running and not cancelled."""
    running = Q(job__status=BackgroundJob.Status.RUNNING, job__cancel_requested_at=None)
    return ImageCommit.objects.filter(running, status__in=NOT_OVER)


def commit_spec(agent: Agent, commit_id: UUID) -> NodeJobSpec:
    """Return an agent's order to save an image, with the registry account. Raises NotFound if the order is obsolete."""
    commit = commits_wanted().filter(pk=commit_id, agent=agent).select_related("registry").first()
    if commit is None or commit.kernel_id is None:
        raise NotFound("This image is not meant for this agent.")
    spec = CommitSpec(
        kernel_id=commit.kernel_id,
        generation=commit.generation,
        reference=commit.reference,
        labels=_own_labels(commit),
        most_bytes=settings.COMMIT_BYTES,
        timeout=float(settings.COMMIT_TIMEOUT),
        push=commit.registry is not None,
        access=push_account_of(commit.registry) if commit.registry else RegistryAccess(),
    )
    return NodeJobSpec(
        kind=COMMIT,
        job_id=commit.pk,
        seconds=spec.timeout,
        has_started=commit.status != _Status.WAITING,
        work=spec.model_dump(mode="json"),
    )


def commit_reported(agent: Agent, report: NodeJobReport, *, now: datetime) -> bool:
    """Apply an agent's report about an image; returns whether the portal still wants the image.

    A saved image is added to its owner's catalogue; an unwanted image that was pushed is deleted. Raises ValueError for
    an invalid result.
    """
    is_wanted = _reported(agent, report, now)
    if not is_wanted and report.state == JobState.DONE:
        pushed = ImageCommit.objects.filter(pk=report.job_id, agent=agent).exclude(registry=None)
        for reference in pushed.values_list("reference", flat=True):
            start_removal(reference, now=now)
    return is_wanted


def mark_unwanted(now: datetime) -> int:
    """Mark up to 1,000 unwanted copies of saved images, so that agents delete them; returns how many.

    Unwanted are images whose saving failed or was cancelled, and deleted images that no live session uses. Images that
    the portal does not know are not marked.
    """
    given_up = ImageCommit.objects.filter(
        reference=OuterRef("reference"), status__in=(_Status.FAILED, _Status.CANCELLED)
    )
    needed = ComputeSession.objects.live().using(OuterRef("pk"))  # also of other users, after its owner was purged
    deleted = Image.objects.filter(~Exists(needed), reference=OuterRef("reference"), is_customized=True)
    deleted = deleted.exclude(deleted_at=None)
    rows = ImageOnAgent.objects.filter(Exists(given_up) | Exists(deleted), is_unwanted=False)
    return rows.filter(pk__in=list(rows.order_by().values_list("pk", flat=True)[:1000])).update(is_unwanted=True)


def _own_labels(commit: ImageCommit) -> dict[str, str]:
    return {
        OWNER_LABEL: f"user:{commit.owner_id}",
        NAME_LABEL: commit.title,
        ID_LABEL: str(commit.pk),
        DEPLOYMENT_LABEL: settings.DEPLOYMENT,
    }


def _reported(agent: Agent, report: NodeJobReport, now: datetime) -> bool:
    rows = ImageCommit.objects.filter(pk=report.job_id, agent=agent).select_related("job", "base", "registry")
    commit = rows.first()
    if commit is None or commit.status == _Status.CANCELLED or commit.status == _Status.FAILED:
        return False
    if commit.status == _Status.DONE:
        return report.state == JobState.DONE
    job = commit.job
    if job is None or not job.is_running or job.cancel_requested_at:
        end_commit(commit, _Status.CANCELLED, Message("Cancelled: no image was created."), now=now)
        return False
    if report.state == JobState.DONE:
        return _made(agent, commit, CommitResult.model_validate(report.result), now)
    if report.state == JobState.FAILED:
        return not end_commit(commit, _Status.FAILED, report.full_message, now=now)
    status = _Status.PUSHING if report.phase == PUSHING else _Status.COMMITTING
    ImageCommit.objects.filter(pk=commit.pk, status__in=NOT_OVER).update(
        status=status, message=report.full_message, heard_at=now
    )
    return report_progress(job.pk, report.progress, report.full_message, now=now)


def _made(agent: Agent, commit: ImageCommit, result: CommitResult, now: datetime) -> bool:
    """Add the image to the catalogue. Returns False if another report or a cancellation came first."""
    with transaction.atomic():
        row = ImageCommit.objects.filter(pk=commit.pk, status__in=NOT_OVER)
        if not row.update(status=_Status.DONE, message="", heard_at=now):
            return False
        image = _image_of(commit, result, now)
        image.save(force_insert=True)
        image.domains.set(_domains_of(commit.base))
        _note_where(agent, image)
        told = {"name": image.name, "reference": image.reference, "session": commit.session_name}
        audit(commit.owner_id, "image.commit", "image", [image.pk], **told)
        where = (
            Message("Stored in the registry {registry}.", registry=commit.registry.name)
            if commit.registry
            else Message("Stored on its agent.")
        )
        size = format_size(result.size_bytes)
        message = Message("{image} has {size}. {where}", image=commit.title, size=size, where=where)
        assert commit.job_id is not None
        finish_job(commit.job_id, message=message, now=now, result={"image": str(image.pk), "name": image.name})
    return True


def _image_of(commit: ImageCommit, result: CommitResult, now: datetime) -> Image:
    """Return the new, unsaved image. Its limits and services come from the base image in the catalogue and not from the
    agent."""
    base = commit.base
    return Image(
        pk=commit.pk,
        name=free_name(commit.reference),
        title=commit.title,
        reference=commit.reference,
        digest=result.digest if commit.registry_id and is_digest(result.digest) else "",
        size_bytes=result.size_bytes,
        architecture=base.architecture if base else "",
        labels=(base.labels if base else {}) | _own_labels(commit),
        services=base.services if base else "",
        minimum=base.minimum if base else {},
        maximum=base.maximum if base else {},
        is_customized=True,
        owner_id=commit.owner_id,
        registry_id=commit.registry_id,
        created_at=now,
    )


def _note_where(agent: Agent, image: Image) -> None:
    """Record that the agent has the image, so that sessions can start there before its next sync."""
    ImageOnAgent.objects.update_or_create(
        agent=agent,
        reference=image.reference,
        defaults={
            "size_bytes": image.size_bytes or 0,
            "labels": image.labels,
            "architecture": image.architecture,
            "digest": image.digest,
        },
    )


def _domains_of(base: Image | None) -> Collection[int]:
    """Return the domains that may use the base image. No other domain may use the new image."""
    if base is None:
        return []
    own = set(base.domains.values_list("pk", flat=True))
    if base.registry is None or base.registry.is_global:
        return own
    of_registry = set(base.registry.domains.values_list("pk", flat=True))
    return (own & of_registry or own) if own else of_registry
