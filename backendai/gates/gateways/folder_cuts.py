"""Unmounts a folder from a running session through its agents. The session continues without the folder."""

from __future__ import annotations

import json
import logging
from datetime import datetime
from uuid import UUID

from backendai.base.core.errors import Conflict
from backendai.base.core.messages import Message
from backendai.domain.accounts.models import User
from backendai.domain.compute.models import Kernel, SessionMount
from backendai.domain.compute.services.life.folder_cuts import mount_to_cut, note_unmounted
from backendai.domain.compute.status import LIVE
from backendai.domain.storage.models import Folder
from backendai.gates.gateways.asking import NodeUnreachable, ask
from backendai.gates.gateways.tickets import address_of

logger = logging.getLogger(__name__)
_LARGEST_ANSWER = 4096
_CONNECT_SECONDS, _READ_SECONDS = 2.0, 15.0
_UNKNOWN_ROUTE = (404, 405)


def unmount(actor: User, folder: Folder, session_id: UUID, *, now: datetime) -> tuple[SessionMount, int]:
    """Unmount the folder in the session.

    Returns the ended mount, and the number of programs killed because they used the folder. Waits for the agents.
    Raises the errors of ``mount_to_cut``, and Conflict if an agent cannot unmount; then the session still mounts the
    folder.
    """
    mount = mount_to_cut(actor, folder, session_id)
    if folder.linked_path:  # agents know a folder in a kernel by its directory, which a linked folder does not have
        raise _refused(Message("It is a linked folder."))
    kernels = list(Kernel.objects.filter(session=session_id, status__in=LIVE).select_related("agent").order_by("rank"))
    ended = sum(_unmount_from(kernel, folder) for kernel in kernels if kernel.agent is not None)
    note_unmounted(actor, mount, now=now)
    return mount, ended


def _unmount_from(kernel: Kernel, folder: Folder) -> int:
    try:
        told = ask(
            address_of(kernel, "cut"),
            method="POST",
            query={"folder": str(folder.pk)},
            largest=_LARGEST_ANSWER,
            connect=_CONNECT_SECONDS,
            read=_READ_SECONDS,
        )
    except NodeUnreachable as error:
        logger.warning("kernel %s is not cut off from folder %s: %s", kernel.pk, folder.pk, error)
        raise _refused(Message("Its agent does not answer.")) from error
    if told.status == 200:
        return _ended_in(told.content)
    if told.status in _UNKNOWN_ROUTE:
        raise _refused(Message("Its agent runs an earlier version of the platform."))
    raise _refused(Message.of(told.content.decode(errors="replace")[:300]))


def _ended_in(content: bytes) -> int:
    try:
        return int(json.loads(content)["ended"])
    except (ValueError, KeyError, TypeError, OverflowError, RecursionError) as error:
        raise _refused(Message("Its agent gave an unexpected answer.")) from error


def _refused(why: Message) -> Conflict:
    return Conflict(
        "The folder cannot be unmounted: {why} Terminate the session instead.", why=why, code="not-unmounted"
    )
