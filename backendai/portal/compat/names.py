"""Finds sessions and folders by the names of the command line, and waits for sessions."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Collection
from uuid import UUID

from backendai.base.core.errors import NotFound
from backendai.domain.accounts.models import User
from backendai.domain.compute.models import ComputeSession
from backendai.domain.storage.models import Folder
from backendai.domain.storage.status import FolderStatus
from backendai.gates.gateways.guests import GuestTarget, find_target
from backendai.portal.api.frame.asynchronous import look
from backendai.portal.compat.frame import Call

_FIRST_PAUSE, _LONGEST_PAUSE = 0.1, 1.0  # seconds between two looks at a session


def named_session(user: User, name: str) -> ComputeSession:
    """Return a visible session by ID, or one of the user by name or the unique beginning of a live name.

    Live ones come first. Raises NotFound.
    """
    rows = ComputeSession.objects.visible_to(user).select_related("owner", "image", "project__domain", "resource_group")
    if pk := id_in(name):
        found = rows.filter(pk=pk).first()
    else:
        own = rows.filter(owner=user)
        begun = list(own.live().filter(name__startswith=name)[:2]) if name else []
        found = own.live().filter(name=name).first() or (begun[0] if len(begun) == 1 else None)
        found = found or own.filter(name=name).order_by("-created_at").first()
    if found is None:
        raise NotFound("No such session, or you may not see it.")
    return found


def named_folder(user: User, name: str) -> Folder:
    """Return a visible folder by ID or name, the user's own first. Raises NotFound."""
    rows = Folder.objects.visible_to(user).select_related("host", "user", "project")
    if pk := id_in(name):
        found = rows.filter(pk=pk).first()
    else:
        named = rows.filter(name=name).exclude(status=FolderStatus.TRASHED)
        found = named.filter(user=user).first() or named.order_by("created_at").first()
    if found is None:
        raise NotFound("No such folder, or you may not see it.")
    return found


def id_in(text: str) -> UUID | None:
    """Return the ID that a text is, with or without dashes; None for another text."""
    try:
        return UUID(text) if len(text) in (32, 36) else None
    except ValueError:
        return None


def guest_of(call: Call, name: str) -> GuestTarget:
    """Return the guest agent of a running session. Raises NotFound, or Conflict if it cannot be asked."""
    return find_target(call.user, named_session(call.user, name).pk)


def session_again(pk: UUID) -> ComputeSession:
    """Return the session as it is now."""
    found: ComputeSession = ComputeSession.objects.select_related("image", "owner").get(pk=pk)
    return found


async def awaited_folder(user: User, pk: UUID, seconds: float) -> Folder:
    """Return the folder once its file server has made it, or as it is after so many seconds."""
    until = time.monotonic() + seconds
    while True:
        folder = await look(named_folder, user, pk.hex)
        if folder.status != FolderStatus.CREATING or time.monotonic() >= until:
            return folder
        await asyncio.sleep(_FIRST_PAUSE)


async def awaited(pk: UUID, statuses: Collection[str], seconds: float) -> ComputeSession:
    """Return the session once it has one of these statuses, or as it is after so many seconds."""
    until, pause = time.monotonic() + seconds, _FIRST_PAUSE
    while True:
        session = await look(session_again, pk)
        if session.status in statuses or time.monotonic() >= until:
            return session
        await asyncio.sleep(pause)
        pause = min(1.5 * pause, _LONGEST_PAUSE)
