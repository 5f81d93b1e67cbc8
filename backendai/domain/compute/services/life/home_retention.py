"""Keeps the home of a running session by copying it into a new folder. The session must not end meanwhile."""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime
from uuid import UUID

from backendai.base.core.errors import Conflict, NotAllowed
from backendai.base.wire.capabilities import Capability
from backendai.domain.accounts.models import User
from backendai.domain.activity.services import audit
from backendai.domain.cluster.capabilities import capabilities_of
from backendai.domain.cluster.models import Agent
from backendai.domain.compute.models import ComputeSession, HomeKeep, Kernel
from backendai.domain.compute.status import Status
from backendai.domain.storage.models import Folder, StorageHost
from backendai.domain.storage.services import create_folder


def keep_home(
    user: User,
    session: ComputeSession,
    *,
    name: str,
    host: StorageHost | None = None,
    limit_bytes: int | None = None,
    ends_session: bool = False,
    now: datetime,
) -> Folder:
    """Create and return a folder, which is CREATING until the main kernel's home is copied into it.

    Raises NotAllowed unless the user owns the session, Conflict if its home cannot be copied now, and the errors of
    ``create_folder``.
    """
    if session.owner_id != user.pk:
        raise NotAllowed("Only its owner may keep the home folder of a session.", code="not-the-owner")
    kernel = kernel_with_home(session)
    if keep := home_under_way(session):
        raise Conflict(
            "The home folder of this session is being copied into the folder {folder}. Wait until that is "
            "done, or cancel it under the bell.",
            folder=keep.folder.name,
            code="home-being-kept",
        )

    def note(folder: Folder) -> None:
        HomeKeep.objects.create(
            folder=folder,
            user=user,
            session=session,
            kernel=kernel,
            generation=kernel.generation,
            ends_session=ends_session,
            created_at=now,
        )
        audit(user.pk, "session.keep-home", "session", [session.pk], name=session.name, folder=folder.name)

    return create_folder(user, name=name, host=host, limit_bytes=limit_bytes, filled_by=note, now=now)


def kernel_with_home(session: ComputeSession) -> Kernel:
    """Return the main kernel if its home can be copied now. Else raises Conflict."""
    if session.status == Status.TERMINATING:
        raise Conflict("The session is being ended: its home folder cannot be kept any more.", code="not-running")
    if session.status != Status.RUNNING:
        raise Conflict("Only the home folder of a running session can be kept.", code="not-running")
    kernel: Kernel | None = session.kernels.select_related("agent").order_by("rank").first()
    if kernel is None or kernel.agent is None or kernel.status != Status.RUNNING:
        raise Conflict("Only the home folder of a running session can be kept.", code="not-running")
    if Capability.SIMULATED in capabilities_of(kernel.agent):
        raise Conflict("Simulated sessions have no home folder.", code="no-home")
    if kernel.agent.status not in (Agent.Status.ALIVE, Agent.Status.DRAINING):
        raise Conflict("Agent {agent} is not reachable.", agent=kernel.agent.name, code="agent-silent")
    return kernel


def home_under_way(session: ComputeSession) -> HomeKeep | None:
    """Return the copy of the session's home in progress, or None."""
    rows = HomeKeep.objects.filter(session=session, folder__fill__is_over=False).select_related("folder__fill")
    return rows.first()


def homes_being_kept(session_ids: Collection[UUID]) -> set[UUID]:
    """Return the ids of the sessions whose home is being copied."""
    rows = HomeKeep.objects.filter(session__in=session_ids, folder__fill__is_over=False)
    return set(rows.order_by().values_list("session_id", flat=True))


def refuse_while_home_is_kept(session: ComputeSession) -> None:
    """Raise Conflict while the session's home is being copied, as its end would abort the copy."""
    if keep := home_under_way(session):
        raise Conflict(
            "The home folder of this session is being copied into the folder {folder}. Wait for it, cancel "
            "it under the bell, or force the termination.",
            folder=keep.folder.name,
            code="home-being-kept",
            job=str(keep.folder.fill.job_id),
        )
