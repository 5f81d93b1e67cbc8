"""Statuses of folders, the transitions between them, and the rights people have to a folder."""

from __future__ import annotations

from django.db import models

from backendai.base.core.messages import Message
from backendai.base.wire.folder_tickets import EDIT, NONE, VIEW


class FolderStatus(models.TextChoices):
    """Where a folder is in its life."""

    CREATING = "CREATING", Message("creating")
    READY = "READY", Message("ready")
    TRASHED = "TRASHED", Message("in the trash")
    DELETING = "DELETING", Message("deleting")
    DELETED = "DELETED", Message("deleted")
    ERROR = "ERROR", Message("error")


TRANSITIONS: dict[FolderStatus, frozenset[FolderStatus]] = {
    FolderStatus.CREATING: frozenset({FolderStatus.READY, FolderStatus.ERROR, FolderStatus.DELETING}),
    FolderStatus.READY: frozenset({FolderStatus.TRASHED}),
    FolderStatus.TRASHED: frozenset({FolderStatus.READY, FolderStatus.DELETING}),
    # READY and TRASHED: the disk has seen a use that a restored database does not know.
    FolderStatus.DELETING: frozenset(
        {FolderStatus.DELETED, FolderStatus.ERROR, FolderStatus.READY, FolderStatus.TRASHED}
    ),
    FolderStatus.ERROR: frozenset({FolderStatus.CREATING, FolderStatus.DELETING}),
    FolderStatus.DELETED: frozenset(),
}
LIVE = frozenset(set(FolderStatus) - {FolderStatus.DELETED})


class Usage(models.TextChoices):
    """What a folder is for."""

    GENERAL = "general", Message("general data")
    MODEL = "model", Message("models to serve")
    HOME = "home", Message("homes of stopped sessions")


class Rights(models.TextChoices):
    """What a person may do with the files of a folder. Managing is not granted: owners and administrators manage."""

    NONE = NONE, Message("no access")
    VIEW = VIEW, Message("can view")
    EDIT = EDIT, Message("can edit")


class GrantKind(models.TextChoices):
    """Why a grant exists: a folder was shared by invitation, or a project's default is replaced for one member."""

    INVITATION = "invitation", Message("invitation")
    OVERRIDE = "override", Message("override of the project's default")


class QuotaMode(models.TextChoices):
    """Whether a host's file system holds folders to their limit, or the platform only measures them."""

    ENFORCED = "enforced", Message("enforced by the file system")
    MEASURED = "measured", Message("measured")
