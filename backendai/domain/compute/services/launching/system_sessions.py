"""System sessions: small sessions that open folders for file clients. Policies limit only their number. They end when
no client is connected."""

from __future__ import annotations

import secrets
from collections.abc import Container, Iterable
from datetime import datetime, timedelta
from math import inf
from typing import Any

from django.db.models import Q

from backendai.base.core.errors import Conflict, UserError
from backendai.base.core.messages import Message
from backendai.base.core.slots import Slots
from backendai.domain.accounts.models import User
from backendai.domain.catalog.models import Image, ImageOnAgent
from backendai.domain.cluster.models import Agent, ResourceGroup
from backendai.domain.compute.models import ComputeSession
from backendai.domain.compute.services.launching.create import create_session
from backendai.domain.compute.services.life.ending import end_each, terminate_session
from backendai.domain.compute.services.requests.amounts import minimum_of
from backendai.domain.compute.services.requests.limits import AMOUNTS, KIND, key_pair_of, projects_open
from backendai.domain.compute.services.requests.mounts import folders_of, place_for
from backendai.domain.compute.services.status.moves import StatusCause
from backendai.domain.compute.spec import MountRequest, SessionSpec
from backendai.domain.compute.status import Outcome, Phase, Status
from backendai.domain.storage.models import Folder
from backendai.domain.storage.permissions import allows
from backendai.domain.storage.status import Rights

UNUSED_FOR = timedelta(minutes=15)
_AT_REST = timedelta(minutes=2)
_HIGHEST = 100  # the session needs almost nothing, and a person waits for the connection
_ROLE = "ai.backend.role"


def open_folders(owner: User, now: datetime) -> ComputeSession:
    """Return the owner's system session, or launch one that mounts the owner's folders.

    An unused session that lacks a folder is terminated and replaced, and so is a session that mounts a folder to which
    the owner has lost the rights. Raises UserError; Conflict at the limit.
    """
    try:
        return _open(owner, now)
    except Conflict:  # another client of the owner may have launched the session meanwhile
        session = session_of(owner)
        if session is None:
            raise
        return session


def _open(owner: User, now: datetime) -> ComputeSession:
    session = session_of(owner)
    if session is None:
        return create_session(owner, _spec(owner))
    if lost_folders(session):
        terminate_session(session, owner)
        return create_session(owner, _spec(owner))
    if not _is_at_rest(session, now):
        return session
    try:
        spec = _spec(owner)
    except UserError:  # no other session can be launched
        return session
    if {mount.folder for mount in spec.mounts} <= {str(pk) for pk in _mounted(session)}:
        return session
    terminate_session(session, owner)
    return create_session(owner, spec)


def left_out(owner: User, session: ComputeSession) -> list[str]:
    """Return the names of the owner's folders that the session does not open.

    Causes: their storage host is not mounted where the session runs, there are more folders than mounts are allowed, or
    they are newer than the session. Two queries.
    """
    mounted = _mounted(session)
    return [folder.name for folder in folders_of(owner) if folder.pk not in mounted]


def lost_folders(session: ComputeSession) -> list[str]:
    """Return the names of folders that are mounted with more rights than the session's owner has now. At most three
    queries."""
    mounts = session.mounts.filter(released_at=None).values_list("folder_id", "folder_name", "rights")
    rows = Folder.objects.live().with_rights_of(session.owner).filter(mounts__session=session)
    rights = dict(rows.values_list("pk", "rights"))
    return [name for pk, name, mounted in mounts if not allows(rights.get(pk, Rights.NONE), mounted)]


def _mounted(session: ComputeSession) -> set[Any]:
    return set(session.mounts.values_list("folder_id", flat=True))


def session_of(owner: User) -> ComputeSession | None:
    """Return the owner's newest live system session that is not terminating, or None."""
    mine = ComputeSession.objects.live().filter(owner=owner, session_type=KIND).exclude(status=Status.TERMINATING)
    found: ComputeSession | None = mine.select_related("traffic").order_by("-created_at").first()
    return found


def end_unused(now: datetime) -> int:
    """End system sessions that have had no connected client for ``UNUSED_FOR``, at most 1,000 per call; returns how
    many. Sessions that never started count from their launch. One statement if there are none."""
    since = now - UNUSED_FOR
    at_rest = Q(traffic=None) | Q(traffic__last_at__lte=since)
    started = Q(started_at__lte=since) | Q(started_at=None, created_at__lte=since)
    unused = ComputeSession.objects.live().filter(at_rest, started, session_type=KIND)
    minutes = round(UNUSED_FOR.total_seconds() / 60)
    text = Message("Nobody was connected for {minutes} minutes.", minutes=minutes)
    why = StatusCause(Phase.RUN, "not-connected", text, {"minutes": minutes}, outcome=Outcome.EXPIRED)
    whys = {pk: why for pk in unused.exclude(status=Status.TERMINATING).values_list("pk", flat=True)[:1000]}
    ended = end_each(whys, only_from=[Status.PENDING, Status.RUNNING], now=now)
    return len(ended.terminating) + len(ended.cancelled)


def _is_at_rest(session: ComputeSession, now: datetime) -> bool:
    """Return whether the session runs and has had no client for ``_AT_REST``. Connected clients are recorded once a
    minute."""
    traffic = getattr(session, "traffic", None)
    return session.is_running and max(filter(None, (session.started_at, traffic and traffic.last_at))) < now - _AT_REST


def _spec(owner: User) -> SessionSpec:
    if not folders_of(owner):
        raise UserError("You have no folder to open: create one first.", field="folders", code="no-folders")
    project = min(projects_open(owner, owner), key=lambda one: one.created_at, default=None)
    if project is None:
        raise UserError("You are in no active project.", field="project", code="no-project")
    groups = ResourceGroup.objects.usable_for(project, key_pair_of(owner)).order_by("-is_default", "created_at", "pk")
    taking = [one for one in groups if KIND in one.allowed_session_types]
    if not taking:
        text = Message("No resource group that is open to you takes system sessions: ask an administrator.")
        raise UserError(text, field="resource_group", code="session-type-not-allowed")
    place = place_for(owner, taking)
    image = _image(Image.objects.usable_by(owner).usable_in(project.domain_id), _references_in(place.group))
    return SessionSpec(
        image=image.reference,
        name=f"folders-{secrets.token_hex(3)}",
        session_type=KIND,
        resources=Slots({name: max(AMOUNTS[name], minimum_of(image)[name]) for name in AMOUNTS}).to_json(),
        project=str(project.pk),
        resource_group=place.group.name,
        priority=None,
        mounts=_mounts(place.folders),
    )


def _mounts(folders: Iterable[Any]) -> list[MountRequest]:
    """Return a mount request for each folder, at the folder's name in the home. Further folders of the same name get a
    number."""
    found: dict[str, MountRequest] = {}
    for folder in folders:
        target, number = folder.name, 2
        while target in found:
            target, number = f"{folder.name}-{number}", number + 1
        found[target] = MountRequest(str(folder.pk), target=target)
    return list(found.values())


def _references_in(group: ResourceGroup) -> set[str]:
    """Return the references of the images that agents of the group have. One query."""
    there = ImageOnAgent.objects.filter(agent__resource_group=group, agent__status=Agent.Status.ALIVE)
    return set(there.order_by().values_list("reference", flat=True).distinct())


def _image(images: Iterable[Any], there: Container[str]) -> Any:
    """Return the image for system sessions. Raises UserError if there is no image.

    Preferred in this order: an image whose label names this purpose; an image that is not saved from a session; small
    minimum amounts; an image that agents have already (``there``), as a person waits for the connection; the smallest
    image.
    """

    def rank(image: Any) -> tuple[Any, ...]:
        is_meant = str(image.labels.get(_ROLE, "")).upper() == "SYSTEM"
        small = all(minimum_of(image)[name] <= AMOUNTS[name] for name in AMOUNTS)
        return not is_meant, image.is_customized, not small, image.reference not in there, image.size_bytes or inf

    found = min(images, key=rank, default=None)
    if found is None:
        raise UserError("No image can open folders: ask an administrator to add one.", code="no-image")
    return found
