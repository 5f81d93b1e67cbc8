"""Folders and their files in the form of the official client."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

from django.utils import timezone

from backendai.base.core.errors import NotFound, UserError
from backendai.domain.accounts.models import Project, User
from backendai.domain.storage.entries import FolderFiles, open_folder
from backendai.domain.storage.models import FolderGrant, StorageHost
from backendai.domain.storage.services import (
    accept_invitation,
    create_folder,
    decline_invitation,
    rename_folder,
    share_folder,
    trash_folder,
)
from backendai.domain.storage.status import Rights
from backendai.portal.api.folders.views import host_named
from backendai.portal.api.frame.asynchronous import look
from backendai.portal.compat.frame import LONGEST_PATH, Call, NotOffered
from backendai.portal.compat.lists import folders_of, moment, shown_folder
from backendai.portal.compat.names import awaited_folder, id_in, named_folder

MOST_LISTED, MOST_ENTRIES = 500, 1000
_CREATE_SECONDS = 10.0
_RIGHTS = {"ro": Rights.VIEW, "rw": Rights.EDIT, "wd": Rights.EDIT}


def folders(call: Call) -> list[dict[str, Any]]:
    """Return the visible folders, 500 at most."""
    return [shown_folder(one) for one in folders_of(call.user).order_by("name", "pk")[:MOST_LISTED]]


async def create(call: Call) -> tuple[dict[str, Any], int]:
    """Create a folder, and answer when it can be used."""
    made = await awaited_folder(call.user, await look(_create, call), _CREATE_SECONDS)
    return shown_folder(made), 201


def _create(call: Call) -> UUID:
    if call.values.get("unmanaged_path"):
        raise NotOffered("Administrators offer existing directories under Administration, Folders.")
    host, group = host_named(call.user, call.text("host", "")), call.text("group", "")
    usage, cloneable = call.text("usage_mode", "general").lower(), call.flag("cloneable")
    project = _project(call.user, group) if group else None
    return create_folder(
        call.user, name=call.text("name"), host=host, project=project, usage=usage, is_cloneable=cloneable,
        now=timezone.now(),
    ).pk  # fmt: skip


def _project(user: User, name: str) -> Project:
    rows, pk = Project.objects.managed_by(user), id_in(name)
    found: Project | None = (rows.filter(pk=pk) if pk else rows.filter(name=name)).first()
    if found is None:
        raise UserError("Project not found, or you do not manage it.", field="group", code="unknown-project")
    return found


def hosts(call: Call) -> dict[str, Any]:
    """Return the storage hosts where folders can be created."""
    rows = list(StorageHost.objects.visible_to(call.user).order_by("name"))
    usual = next((one.name for one in rows if one.is_default), "")
    return {"default": usual, "allowed": [one.name for one in rows], "volume_info": {}}


def info(call: Call, name: str) -> dict[str, Any]:
    """Return the folder."""
    return shown_folder(named_folder(call.user, name))


def delete(call: Call, name: str) -> None:
    """Move the folder to the trash."""
    trash_folder(named_folder(call.user, name), call.user, now=timezone.now())


def rename(call: Call, name: str) -> tuple[dict[str, Any], int]:
    """Rename the folder."""
    rename_folder(named_folder(call.user, name), call.user, call.text("new_name"), now=timezone.now())
    return {}, 201


def entries(call: Call, name: str) -> dict[str, Any]:
    """Return the entries of a directory, 1,000 at most."""
    found = _files(call, name).entries({"path": _inside(call, "path", "."), "limit": MOST_ENTRIES})["entries"]
    items = [
        {"name": one["name"], "type": "DIRECTORY" if one["kind"] == "directory" else "FILE", "size": one["size"] or 0,
         "mode": "0o755" if one["kind"] == "directory" else "0o644", "created": _at(one), "modified": _at(one)}
        for one in found
    ]  # fmt: skip
    old = [
        {"filename": item["name"], "size": item["size"], "mode": item["mode"], "mtime": each["mtime"],
         "ctime": each["mtime"]}
        for item, each in zip(items, found, strict=True)
    ]  # fmt: skip
    return {"items": items, "files": json.dumps(old)}


def mkdir(call: Call, name: str) -> tuple[dict[str, Any], int]:
    """Create a directory."""
    return _files(call, name, to_edit=True).make_directory(_inside(call, "path")), 201


def rename_file(call: Call, name: str) -> dict[str, Any]:
    """Rename a file or directory in its place."""
    source = _inside(call, "target_path")
    target = f"{source.rpartition('/')[0]}/{call.text('new_name')}".strip("/")
    return _files(call, name, to_edit=True).move(source, target)


def move_file(call: Call, name: str) -> dict[str, Any]:
    """Move a file or directory inside the folder."""
    return _files(call, name, to_edit=True).move(_inside(call, "src"), _inside(call, "dst"))


def delete_files(call: Call, name: str) -> dict[str, Any]:
    """Put files and directories into the trash of the folder."""
    return _files(call, name, to_edit=True).delete([clean_path(path) for path in call.texts("files")])


def invite(call: Call, name: str) -> tuple[dict[str, Any], int]:
    """Invite people by their addresses, up to the first that is refused."""
    people = call.texts("user_ids", most=254) or call.texts("emails", most=254)
    rights = _RIGHTS.get(call.text("perm", "rw"))
    if rights is None:
        raise UserError("perm must be ro, rw or wd.", field="perm")
    for email in people:
        share_folder(named_folder(call.user, name), call.user, email, rights, now=timezone.now())
    return {"invited_ids": people}, 201


def invitations(call: Call) -> dict[str, Any]:
    """Return the open invitations of the caller."""
    rows = FolderGrant.objects.pending_for(call.user).select_related("folder", "created_by").order_by("pk")
    return {"invitations": [_invitation(one, call.user) for one in rows[:MOST_LISTED]]}


def accept(call: Call) -> dict[str, Any]:
    """Accept an invitation."""
    accept_invitation(_grant(call), call.user, now=timezone.now())
    return {"msg": "You have accepted the invitation."}


def decline(call: Call) -> dict[str, Any]:
    """Decline an invitation."""
    decline_invitation(_grant(call), call.user, now=timezone.now())
    return {"msg": "You have declined the invitation."}


def _grant(call: Call) -> FolderGrant:
    number = call.text("inv_id", most=18)
    rows = FolderGrant.objects.pending_for(call.user).select_related("folder")
    found: FolderGrant | None = rows.filter(pk=int(number)).first() if number.isdecimal() else None
    if found is None:
        raise NotFound("No such invitation: it was revoked, or answered before.")
    return found


def _invitation(one: FolderGrant, user: User) -> dict[str, Any]:
    rights = "ro" if one.rights == Rights.VIEW else "rw"
    inviter, at = one.created_by.email if one.created_by else "", moment(one.created_at)
    return {
        "id": str(one.pk), "inviter": inviter, "invitee": user.email, "perm": rights, "mount_permission": rights,
        "state": "pending", "created_at": at, "modified_at": at, "vfolder_id": one.folder_id.hex,
        "vfolder_name": one.folder.name,
    }  # fmt: skip


def _files(call: Call, name: str, *, to_edit: bool = False) -> FolderFiles:
    return open_folder(call.user, named_folder(call.user, name), to_edit=to_edit)


def _inside(call: Call, name: str, default: str | None = None) -> str:
    return clean_path(call.text(name, default, most=LONGEST_PATH))


def clean_path(path: str) -> str:
    """Return a path relative to the folder."""
    return "/".join(word for word in path.split("/") if word not in ("", "."))


def _at(one: dict[str, Any]) -> str:
    return datetime.fromtimestamp(float(one["mtime"]), UTC).isoformat()
