"""Decides the rights of a person to a folder, for pages, REST, tickets and mounts alike."""

from __future__ import annotations

from typing import Literal
from uuid import UUID

from backendai.base.core.errors import NotAllowed, NotFound
from backendai.base.core.messages import Message
from backendai.domain.accounts.models import User
from backendai.domain.activity.refusals import note_refusal
from backendai.domain.storage.models import Folder
from backendai.domain.storage.querysets import MANAGE
from backendai.domain.storage.status import Rights

_ORDER = (str(Rights.NONE), str(Rights.VIEW), str(Rights.EDIT), MANAGE)
_WORDS = {str(Rights.VIEW): "look at", str(Rights.EDIT): "change files of", MANAGE: "manage"}


def rights_of(user: User, folder: Folder) -> str:
    """Return ``none``, ``view``, ``edit`` or ``manage``; one query."""
    found = Folder.objects.visible_to(user).filter(pk=folder.pk).values_list("rights", flat=True).first()
    return str(found or Rights.NONE)


def allows(rights: str, least: str) -> bool:
    """Return whether ``rights`` include ``least``."""
    return _ORDER.index(rights) >= _ORDER.index(least)


def require_rights(user: User, folder: Folder | UUID, least: str) -> Folder:
    """Return the folder as it is now, with ``rights``, host and owner. Raises NotFound when the user has none,
    NotAllowed when they have less than ``least``; one query."""
    pk = folder.pk if isinstance(folder, Folder) else folder
    rows = Folder.objects.visible_to(user).select_related("host", "user", "project__domain")
    found: Folder | None = rows.filter(pk=pk).first()
    if found is None:
        raise NotFound("Folder not found.", code="no-folder")
    rights = str(getattr(found, "rights"))  # noqa: B009  (an annotation)
    if not allows(rights, least):
        note_refusal(user.pk, f"{least}-folder", "folder", found.pk)
        text = Message(
            "You may not {words} the folder {found}: your rights are {rights}.",
            words=_WORDS[least],
            found=found.name,
            rights=rights,
        )
        raise NotAllowed(text, code="folder-rights", rights=rights, needed=least)
    return found


def file_rights(folder: Folder, rights: str) -> Literal["view", "edit"]:
    """Return the rights to the folder's files that follow from these rights; linked folders are read-only."""
    return "edit" if allows(rights, Rights.EDIT) and not folder.linked_path else "view"
