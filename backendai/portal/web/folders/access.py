"""Common parts of the pages of one folder: access, header, and the origin of its files."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Any, cast
from uuid import UUID

from csp.constants import SELF
from csp.decorators import csp_update
from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.urls import reverse

from backendai.base.core.errors import UserError
from backendai.base.texts.messages import in_words
from backendai.domain.cluster.models import Agent
from backendai.domain.storage.file_origins import file_origin
from backendai.domain.storage.models import Folder, StorageHost
from backendai.domain.storage.permissions import allows, file_rights
from backendai.domain.storage.querysets import MANAGE
from backendai.domain.storage.status import FolderStatus, QuotaMode
from backendai.portal.web.frame.app_reach import why_out_of_reach
from backendai.portal.web.frame.requests import PageRequest


@dataclass(frozen=True, slots=True)
class AccessFaults:
    """The faults of a folder's access.

    ``since``: when the fault of its file server was first seen. ``agents_since``: when the last agent that mounts the
    folder was lost.
    """

    fault: str = ""
    since: datetime | None = None
    agents_since: datetime | None = None


def away_of(host: StorageHost) -> AccessFaults:
    """Return the faults of access to the folders of a storage host; one query."""
    agents = list(
        host.on_agents.filter(agent__in=Agent.objects.registered()).values_list("agent__status", "agent__lost_at")
    )
    is_lost = all(status == Agent.Status.LOST for status, _ in agents)
    lost = [lost_at for _, lost_at in agents if lost_at is not None]
    return AccessFaults(host.fault, host.fault_since, max(lost) if is_lost and lost else None)


def find_folder(request: PageRequest, folder_id: UUID, least: str = "view") -> Folder:
    """Return the folder with the user's ``rights``; 404 if they are below ``least``."""
    rows = Folder.objects.visible_to(request.user).select_related("host", "user", "project__domain", "cloned_from")
    folder: Folder = get_object_or_404(rows, pk=folder_id)
    return folder if allows(rights_to(folder), least) else get_object_or_404(rows.none())


def rights_to(folder: Folder) -> str:
    """Return the rights of the user for whom ``find_folder`` found the folder."""
    return str(folder.rights)  # type: ignore[attr-defined]


def may_change_files(folder: Folder) -> bool:
    """Return whether the user for whom the folder was found may change its files."""
    return folder.status == FolderStatus.READY and file_rights(folder, rights_to(folder)) == "edit"


def folder_page(
    request: PageRequest, folder: Folder, name: str, context: dict[str, Any], *, tab: str = "", status: int = 200
) -> HttpResponse:
    """Return a page about one folder. Its content policy allows the origin of the folder's files."""
    origin = file_origin(folder.pk)
    obstacle = why_out_of_reach(request.get_host(), origin.partition("://")[2].partition(":")[0].partition(".")[2])
    shown = {
        "section": "folders",
        "folder": folder,
        "tab": tab,
        "tabs": _tabs(folder),
        "rights": rights_to(folder),
        "manages": rights_to(folder) == MANAGE,
        "may_change": may_change_files(folder),
        "is_ready": folder.status == FolderStatus.READY,
        "is_enforced": folder.host.quota_mode == QuotaMode.ENFORCED,
        "used_percent": used_percent(folder),
        "away": away_of(folder.host),
        "origin": origin,
        "obstacle": obstacle,
        **explored(folder),
    }

    def page(request: HttpRequest) -> HttpResponse:
        return render(request, f"web/folders/{name}.html", shown | context, status=status)

    policy = {"connect-src": [SELF, origin], "form-action": [SELF, origin], "img-src": [SELF, "data:", "blob:"]}
    return cast(HttpResponse, csp_update(policy)(page)(request))


def explored(folder: Folder) -> dict[str, Any]:
    """Return the context of parts that show files: the folder, and the routes of its pages."""
    names = {
        "here": "folder",
        "file": "folder_file",
        "lead": "folder_lead",
        "enter": "folder_enter",
        "make_directory": "folder_make_directory",
        "rename": "folder_rename_entry",
        "move": "folder_move",
        "delete": "folder_delete",
    }
    ways = {way: reverse(f"web:{name}", args=[folder.pk]) for way, name in names.items()}
    return {"ways": ways, "key": folder.pk, "root_name": folder.name, "status": folder.status}


def used_percent(folder: Folder) -> int | None:
    """Return the used share of the limit in per cent. None without a limit, or before the first measurement."""
    if not folder.limit_bytes or folder.used_bytes is None:
        return None
    return min(100, folder.used_bytes * 100 // folder.limit_bytes)


def try_to(request: PageRequest, work: Callable[[], str]) -> bool:
    """Call ``work`` and show its message, or its error, on the next page. Returns whether it succeeded."""
    try:
        messages.success(request, work())
    except UserError as error:
        messages.error(request, in_words(error.message))
        return False
    return True


def back_to(folder_id: UUID, path: str = "") -> HttpResponse:
    """Redirect to a directory of the folder."""
    return redirect(explorer_at(folder_id, path))


def explorer_at(folder_id: UUID, path: str = "") -> str:
    """Return the address of a directory's page."""
    return reverse("web:folder", args=[folder_id], query={"path": path} if path else None)


def _tabs(folder: Folder) -> list[tuple[str, str]]:
    tabs = [("files", "web:folder"), ("bin", "web:folder_bin"), ("settings", "web:folder_settings")]
    return [*tabs[:2], ("sharing", "web:folder_sharing"), tabs[2]] if rights_to(folder) == MANAGE else tabs
