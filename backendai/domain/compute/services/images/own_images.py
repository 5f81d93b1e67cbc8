"""Lists, renames and deletes images that users have saved from their sessions."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from django.db import transaction
from django.db.models import Exists, OuterRef

from backendai.base.core.errors import Conflict
from backendai.base.core.names import check_own_image_name
from backendai.base.wire.broker.hints import hint_on_commit
from backendai.base.wire.broker.queues import node_queue
from backendai.domain.accounts.models import Project, User
from backendai.domain.accounts.policies.applicable import USER, key_of
from backendai.domain.activity.access_notices import withdraw_access
from backendai.domain.activity.models import BackgroundJob
from backendai.domain.activity.services import audit
from backendai.domain.catalog.models import Image, ImageOnAgent, ImageShare
from backendai.domain.catalog.tags import PAUSE, TAG_JOB, start_removal
from backendai.domain.compute.models import ComputeSession, ImageCommit
from backendai.domain.compute.services.images.commit_reports import mark_unwanted
from backendai.domain.compute.services.images.commits import NOT_OVER
from backendai.domain.compute.services.requests.limits import lock_holders

_MOST_NAMED = 5
_MOST_AT_ONCE = 100


@dataclass(frozen=True, slots=True)
class OwnImage:
    """A saved image, the order that saved it, the agents that have it, and the projects that share it."""

    image: Image
    commit: ImageCommit | None
    agents: list[str]
    projects: list[Project]


def own_images(user: User) -> list[OwnImage]:
    """Return the user's saved images, the newest first. Four queries."""
    images = list(Image.objects.own_of(user).select_related("registry").order_by("-created_at", "-pk"))
    commits = ImageCommit.objects.select_related("session").in_bulk([image.pk for image in images])
    agents = _agents_with(images)
    shared = _shared_with(images)
    return [OwnImage(image, commits.get(image.pk), agents[image.reference], shared[image.pk]) for image in images]


def rename_own_image(actor: User, image: Image, title: str) -> Image:
    """Rename the saved image and return it. Raises UserError for an invalid title, Conflict if another image of the
    owner has the title. Locks the owner's limits."""
    check_own_image_name(title)
    with transaction.atomic():
        if image.owner_id is not None:
            lock_holders([key_of(USER, image.owner_id)])
        others = Image.objects.kept().filter(is_customized=True, owner=image.owner_id, title=title).exclude(pk=image.pk)
        waiting = ImageCommit.objects.filter(owner=image.owner_id, title=title, status__in=NOT_OVER)
        if others.exists() or waiting.exists():
            raise Conflict(
                "An image named {title} already exists; choose another name.",
                title=title,
                field="name",
                code="name-taken",
            )
        if title != image.title:
            changes = {"title": [image.title, title]}
            audit(actor.pk, "image.change", "image", [image.pk], name=image.name, changes=changes)
            image.title = title
            image.save(update_fields=["title"])
    return image


def delete_own_image(actor: User, image: Image, *, now: datetime) -> None:
    """Hide a saved image, and start the deletion of its copies and its tag. Agents delete the copies, and a background
    job the tag in the registry. Raises Conflict while live sessions use the image."""
    with transaction.atomic():
        _refuse_while_needed(actor, image)
        _mark_deleted(image, now)
        audit(actor.pk, "image.delete", "image", [image.pk], name=image.name, reference=image.reference)


def delete_images_of(user: User, *, now: datetime) -> None:
    """Mark all saved images of a user as deleted. Also blanks the texts of the user's image commits. Part of purging a
    user; the caller has checked that the user has no live session."""
    for image in Image.objects.own_of(user):
        _mark_deleted(image, now)
    ImageCommit.objects.filter(owner=user).update(title="", session_name="", message="")


def remove_left_tags(now: datetime) -> int:
    """Start deleting registry tags that deleted images left behind, at most ``_MOST_AT_ONCE`` per call. Tags are left
    behind if the job was lost, or other people's sessions used the image. Returns 0, as jobs delete the tags."""
    asked = BackgroundJob.objects.filter(kind=TAG_JOB, subject=OuterRef("reference"), created_at__gt=now - PAUSE)
    deleted = Image.objects.filter(is_customized=True).exclude(deleted_at=None).exclude(registry=None, digest="")
    left = deleted.filter(~Exists(asked), ~Exists(ComputeSession.objects.live().using(OuterRef("pk"))))
    for reference in list(left.order_by("deleted_at").values_list("reference", flat=True)[:_MOST_AT_ONCE]):
        start_removal(reference, now=now)
    return 0


def sessions_on(image: Image, viewer: User) -> tuple[list[ComputeSession], int]:
    """Return the oldest five live sessions of the image, and the number of hidden ones. Hidden: live sessions that the
    viewer may not see."""
    live = ComputeSession.objects.live().using(image)
    seen = ComputeSession.objects.visible_to(viewer).live().using(image)
    return list(seen.order_by("created_at")[:_MOST_NAMED]), live.count() - seen.count()


def _refuse_while_needed(actor: User, image: Image) -> None:
    sessions, others = sessions_on(image, actor)
    details: dict[str, Any] = {"sessions": [str(session.pk) for session in sessions], "others": others}
    if sessions:
        names = [session.name for session in sessions]
        more = ", …" if others or len(sessions) == _MOST_NAMED else ""
        raise Conflict(
            "{display_name} is used by active sessions: {names}{more}. Terminate them first.",
            display_name=image.display_name,
            names=names,
            more=more,
            code="image-in-use",
            **details,
        )
    if others:
        raise Conflict(
            "{display_name} is used by active sessions of other users ({others}). Stop sharing it and wait "
            "for them to end.",
            display_name=image.display_name,
            code="image-in-use",
            **details,
        )


def _mark_deleted(image: Image, now: datetime) -> None:
    """Mark the image as deleted, end its shares, and send hints to the agents that have it.

    Agents that miss the hint delete the image at their next sync. While live sessions use the image, agents and its
    registry keep it.
    """
    Image.objects.filter(pk=image.pk).update(is_enabled=False, deleted_at=now, title="", description="")
    is_pushed = image.registry_id is not None or image.digest  # only pushed images have a digest
    if is_pushed and not ComputeSession.objects.live().using(image).exists():
        start_removal(image.reference, now=now)
    ImageShare.objects.filter(image=image).delete()
    withdraw_access(("image", image.pk))
    agents = list(ImageOnAgent.objects.filter(reference=image.reference).values_list("agent__name", flat=True))
    mark_unwanted(now)
    for agent in agents:
        hint_on_commit("node.sync", queue=node_queue(agent))


def _agents_with(images: Sequence[Image]) -> dict[str, list[str]]:
    rows = ImageOnAgent.objects.filter(reference__in=[image.reference for image in images])
    found = defaultdict[str, list[str]](list)
    for reference, agent in rows.order_by("agent__name").values_list("reference", "agent__name"):
        found[reference].append(agent)
    return found


def _shared_with(images: Sequence[Image]) -> dict[UUID, list[Project]]:
    found = defaultdict[UUID, list[Project]](list)
    for share in ImageShare.objects.filter(image__in=images).select_related("project").order_by("project__name"):
        found[share.image_id].append(share.project)
    return found
