"""Issues tickets with which people reach the file server of a folder."""

from __future__ import annotations

import time
from dataclasses import dataclass

from django.conf import settings

from backendai.base.core.errors import Conflict, NotAllowed
from backendai.base.core.messages import Message
from backendai.base.wire.folder_tickets import LIFETIME_SECONDS, sign_folder_ticket
from backendai.domain.accounts.models import User
from backendai.domain.storage.models import Folder
from backendai.domain.storage.permissions import allows, file_rights, require_rights
from backendai.domain.storage.services.checks import check_choice, wrong_status
from backendai.domain.storage.status import FolderStatus, Rights


@dataclass(frozen=True, slots=True)
class Pass:
    """A ticket with the address where it is valid, and its lifetime in seconds."""

    ticket: str
    address: str
    expires_in: int


def folder_ticket(user: User, folder: Folder, rights: str) -> Pass:
    """Return a ticket for the files of a ready folder, and the address of its file server as the portal's processes
    reach it. Raises NotAllowed for more rights than the user has; files of a linked folder are never changed."""
    folder = ready_folder(user, folder, rights)
    ticket = sign_folder_ticket(
        settings.TICKET_KEY,
        host=folder.host.name,
        folder_id=folder.pk,
        version=folder.version,
        rights="edit" if rights == Rights.EDIT else "view",
        now=time.time(),
        account=user.email,
    )
    return Pass(ticket, folder.host.address, LIFETIME_SECONDS)


def direct_ticket(user: User, folder: Folder, rights: str) -> Pass:
    """Return a ticket with the address by which scripts reach the file server. Raises Conflict if they cannot reach
    it, and the errors of ``folder_ticket``."""
    found = folder_ticket(user, folder, rights)
    public_address = require_rights(user, folder, Rights.VIEW).host.public_address
    if not public_address:
        text = Message(
            "The file server of this folder cannot be reached directly. Send files through the address of the folder."
        )
        raise Conflict(text, code="no-direct-access")
    return Pass(found.ticket, public_address, found.expires_in)


def ready_folder(user: User, folder: Folder, rights: str) -> Folder:
    """Return the folder if the user may do this with its files now; raises NotFound, NotAllowed, or a Conflict."""
    least = check_choice(rights, Rights, "rights")
    folder = require_rights(user, folder, least)
    if least == Rights.EDIT and not allows(file_rights(folder, str(getattr(folder, "rights"))), least):  # noqa: B009
        raise NotAllowed(
            "The folder {folder} is linked: its files cannot be changed here.", folder=folder.name, code="linked-folder"
        )
    if folder.status != FolderStatus.READY:
        raise wrong_status(folder, "opened")
    return folder
