"""Saves a running session as an image of its owner.

A background job shows the progress. An ``ImageCommit`` row is the order to the agent, which reads it by its sync, saves
the main kernel and reports the result. Until then the image is invisible. Abandoned images are deleted.
"""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime, timedelta
from uuid import UUID, uuid4

from django.conf import settings
from django.db import transaction

from backendai.base.core.errors import Conflict, NotAllowed
from backendai.base.core.image_names import customized, parse_image_name
from backendai.base.core.messages import Message, shortened
from backendai.base.core.names import check_own_image_name
from backendai.base.wire.capabilities import Capability
from backendai.base.wire.images import COMMIT
from backendai.domain.accounts.models import User
from backendai.domain.accounts.policies.applicable import USER, key_of, lowest_of_user
from backendai.domain.activity.jobs import finish_job, start_job, stop_job
from backendai.domain.activity.models import BackgroundJob
from backendai.domain.activity.services import audit
from backendai.domain.catalog.models import Image, Registry
from backendai.domain.cluster.capabilities import why_not
from backendai.domain.cluster.models import Agent
from backendai.domain.cluster.node_jobs import Ending, ending_of, hint_job, is_outdated, update_agent
from backendai.domain.compute.models import ComputeSession, ImageCommit, Kernel
from backendai.domain.compute.services.requests.limits import lock_holders
from backendai.domain.compute.status import Status

COMMIT_JOB = COMMIT
NOT_OVER = (ImageCommit.Status.WAITING, ImageCommit.Status.COMMITTING, ImageCommit.Status.PUSHING)
_KEY_LENGTH = 12


def start_commit(user: User, session: ComputeSession, name: str, *, now: datetime) -> BackgroundJob:
    """Start and return the job that saves a session as an image with this name. The caller checks that the user may see
    the session.

    Raises UserError for an invalid name; NotAllowed unless the user owns the session; Conflict if the session cannot be
    saved or is being saved, the name is taken, or the owner has too many images. Locks the user's limits.
    """
    check_own_image_name(name)
    if session.owner_id != user.pk:
        raise NotAllowed("Only its owner may save a session as an image.", code="not-the-owner")
    kernel, agent = _kernel_to_save(session)
    commit = _new_commit(user, session, kernel, name, now)
    with transaction.atomic():
        lock_holders([key_of(USER, user.pk)])
        _refuse_second(session)
        _check_name(user, name)
        _check_number(user)
        longest = timedelta(seconds=settings.COMMIT_TIMEOUT)
        commit.job = start_job(
            COMMIT_JOB,
            f"{name} ({session.name}, {commit.pk.hex[:_KEY_LENGTH]})",
            Message("Sending to the agent."),
            now=now,
            owner_id=user.pk,
            silence_limit=longest,
            longest=longest,
        )
        commit.save()
        audit(user.pk, "session.commit", "session", [session.pk], name=session.name, image=name)
        hint_job(COMMIT, commit.pk, agent)
    return commit.job


def obstacle_to_commit(session: ComputeSession, agent: Agent | None) -> tuple[str, str] | None:
    """Return why the session cannot be saved now, as code and message; None if it can. ``agent``: the agent of the main
    kernel."""
    if not session.kind.is_saved:
        return "interactive-only", Message("Only interactive sessions can be saved as an image.")
    if session.status != Status.RUNNING:
        return "not-running", Message("Only a running session can be saved as an image.")
    if agent and (reason := why_not(agent, Capability.COMMIT)):
        return "no-container-engine", reason
    if agent and is_outdated(agent, COMMIT):
        return "agent-outdated", update_agent(agent)
    return None


def commit_under_way(session: ComputeSession) -> ImageCommit | None:
    """Return the unfinished order to save this session as an image, or None."""
    return ImageCommit.objects.filter(session=session, status__in=NOT_OVER).first()


def being_saved(session_ids: Collection[UUID]) -> set[UUID]:
    """Return the ids of the given sessions that are being saved as an image."""
    rows = ImageCommit.objects.filter(session__in=session_ids, status__in=NOT_OVER)
    return {pk for pk in rows.order_by().values_list("session_id", flat=True) if pk}


def refuse_while_saved(session: ComputeSession) -> None:
    """Raise Conflict while the session is being saved as an image. Its end would abort the saving."""
    if commit := commit_under_way(session):
        raise Conflict(
            "The image {title} is being created from this session. Wait for it, cancel it under the bell, "
            "or force the termination.",
            title=commit.title,
            code="being-saved",
            job=str(commit.job_id),
        )


def most_own_images(user: User) -> int | None:
    """Return the maximum number of this user's saved images; None: unlimited."""
    return lowest_of_user(user, "max_customized_images")


def follow_commits(now: datetime) -> int:
    """End every order to save an image that its agent can no longer complete; returns how many.

    Causes: the session ended before the agent began, the agent is lost or outdated, the job is finished or cancelled,
    or the time limit is exceeded.
    """
    ended = 0
    live = ImageCommit.objects.filter(status__in=NOT_OVER).select_related("job", "agent", "kernel").order_by()
    for commit in live:
        status, message = _end_of(commit, now)
        if status and end_commit(commit, status, message, now=now):
            ended += 1
    return ended


def end_commit(commit: ImageCommit, status: str, message: str, *, now: datetime, fix: str = "") -> bool:
    """End an unfinished order to save an image, and its job, with this message. Returns False if the order was finished
    already."""
    with transaction.atomic():
        row = ImageCommit.objects.filter(pk=commit.pk, status__in=NOT_OVER)
        if not row.update(status=status, message=shortened(message), heard_at=now):
            return False
        if commit.job_id is not None and status == ImageCommit.Status.CANCELLED:
            stop_job(commit.job_id, message=message, now=now)
        elif commit.job_id is not None:
            finish_job(commit.job_id, message=message, now=now, failed=True, fix=fix)
    return True


def _kernel_to_save(session: ComputeSession) -> tuple[Kernel, Agent]:
    kernel: Kernel | None = session.kernels.select_related("agent").order_by("rank").first()
    if found := obstacle_to_commit(session, kernel.agent if kernel else None):
        raise Conflict(found[1], code=found[0])
    if kernel is None or kernel.status != Status.RUNNING or kernel.agent is None:
        raise Conflict("Only a running session can be saved as an image.", code="not-running")
    agent = kernel.agent
    if agent.status not in (Agent.Status.ALIVE, Agent.Status.DRAINING):
        raise Conflict("Agent {agent} is not reachable.", agent=agent.name, code="agent-silent")
    if agent.low_disk:
        raise Conflict("Agent {agent} is short of disk space.", agent=agent.name, code="disk-low")
    return kernel, agent


def _new_commit(user: User, session: ComputeSession, kernel: Kernel, name: str, now: datetime) -> ImageCommit:
    pk = uuid4()
    return ImageCommit(
        pk=pk,
        owner=user,
        session=session,
        session_name=session.name,
        kernel=kernel,
        generation=kernel.generation,
        agent=kernel.agent,
        base=session.image,
        base_name=session.image.display_name,
        title=name,
        reference=customized(session.image.reference, pk.hex[:_KEY_LENGTH]),
        registry=_registry_that_takes(session.image),
        created_at=now,
    )


def _registry_that_takes(image: Image) -> Registry | None:
    """Return the image's registry if it accepts pushes of saved images, else None."""
    registry: Registry | None = image.registry
    if registry is None or not registry.takes_pushes or not registry.is_enabled:
        return None
    return registry if parse_image_name(image.reference).registry == registry.host else None


def _refuse_second(session: ComputeSession) -> None:
    if other := commit_under_way(session):
        raise Conflict(
            "The image {title} is being created from this session; wait for it, or cancel it.",
            title=other.title,
            code="being-saved",
            job=str(other.job_id),
        )


def _check_name(user: User, name: str) -> None:
    there = Image.objects.own_of(user).filter(title=name).exists()
    if there or ImageCommit.objects.filter(owner=user, title=name, status__in=NOT_OVER).exists():
        raise Conflict(
            "You have an image named {name} already; choose another name.", name=name, field="name", code="name-taken"
        )


def _check_number(user: User) -> None:
    most = most_own_images(user)
    if most is None:
        return
    number = Image.objects.own_of(user).count()
    number += ImageCommit.objects.filter(owner=user, status__in=NOT_OVER).count()
    if number >= most:
        raise Conflict(
            "You have {number} images of your own, and may have at most {most}. Delete one that you do not need.",
            most=most,
            code="too-many-images",
            limit=most,
            number=number,
        )


def _end_of(commit: ImageCommit, now: datetime) -> tuple[str, str]:
    """Return the status and the message with which the order ends now. Both are empty while a report of its agent can
    still come."""
    kernel, status = commit.kernel, ImageCommit.Status
    is_waiting = commit.status == status.WAITING
    ending = ending_of(commit.job, commit.agent, COMMIT, is_waiting=is_waiting, heard_at=commit.heard_at, now=now)
    is_gone = kernel is None or kernel.status != Status.RUNNING or kernel.generation != commit.generation
    if ending in (None, Ending.LATE) and is_waiting and is_gone:
        return status.FAILED, Message("The session ended before the image was created.")
    match ending:
        case None:
            return "", ""
        case Ending.JOB_OVER:
            return status.FAILED, Message("The job is over.")
        case Ending.CANCELLED:
            return status.CANCELLED, Message("Cancelled: no image was created.")
        case Ending.AGENT_OUTDATED if commit.agent:
            return status.FAILED, update_agent(commit.agent)
        case Ending.LATE:
            return status.FAILED, Message("The time limit was exceeded: no image was created.")
    return status.FAILED, Message("The agent was lost meanwhile: no image was created.")
