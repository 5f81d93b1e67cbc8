"""Creates a folder from the launch form and selects it there."""

from __future__ import annotations

from django.http import HttpResponse
from django.shortcuts import render
from django.utils import timezone

from backendai.base.core.errors import UserError
from backendai.base.core.session_kinds import KINDS, USUAL_KIND
from backendai.base.paths.mount_targets import HOME
from backendai.domain.storage.models import Folder
from backendai.domain.storage.status import FolderStatus, Rights
from backendai.portal.web.account.menu import blame
from backendai.portal.web.folders.forms import CreateForm
from backendai.portal.web.frame.requests import PageRequest, signed_in
from backendai.portal.web.launch.draft import asked_owner
from backendai.portal.web.launch.fields.mount_fields import PREFIX as MOUNT_PREFIX
from backendai.portal.web.launch.form import LaunchForm

_PREFIX = "new_folder"  # the launch form has fields of the same names
_THEN = f"{_PREFIX}-then"
_LONGEST_NAME = 64


@signed_in("GET", "POST")
def launch_folder(request: PageRequest) -> HttpResponse:
    """Show the form for a new folder; on POST create it, and return the form's folders with it selected.

    With ``new_folder-then=launch`` the folder becomes the start directory too, and the page launches.
    """
    launches = (request.POST or request.GET).get(_THEN) == "launch"
    initial = {"name": _proposed_name(request)} if launches else None
    form = CreateForm(request.POST or None, user=request.user, prefix=_PREFIX, initial=initial)
    form.fields["name"].widget.attrs["autofocus"] = True
    if request.method == "POST" and form.is_valid():
        try:
            return _choice_with(request, form.create(request.user, timezone.now()), launches=launches)
        except UserError as error:
            blame(form, error)
    answer = render(request, "web/launch/_new_folder.html", {"form": form, "launches": launches, "home": HOME})
    # htmx swaps nothing for a 422, and the faults belong into the dialog.
    answer["HX-Retarget"] = "#new-folder-form"
    return answer


@signed_in("POST")
def launch_folders(request: PageRequest) -> HttpResponse:
    """Return the folders of the launch form that match the search, and the selected ones."""
    owner = asked_owner(request).owner
    context = {"form": LaunchForm(request.POST, user=owner, actor=request.user), "owner": owner, "waiting": None}
    return render(request, "web/launch/_mounts.html", context)


def _proposed_name(request: PageRequest) -> str:
    """Return the session's name; for a session without a name its type and the time."""
    name = request.GET.get("name", "").strip()[:_LONGEST_NAME]
    kind = request.GET.get("session_type", "")
    return name or f"{kind if kind in KINDS else USUAL_KIND.name}-{timezone.localtime():%Y%m%d-%H%M%S}"


def _choice_with(request: PageRequest, folder: Folder, *, launches: bool) -> HttpResponse:
    sent, key = request.POST.copy(), str(folder.pk)
    is_ready = folder.status == FolderStatus.READY
    if is_ready:
        sent.appendlist("mounts", key)
    if is_ready and launches:
        sent["start_in"] = key
        sent[f"{MOUNT_PREFIX}{key}.rights"] = Rights.EDIT  # folders of models are mounted read-only otherwise
    context = {
        "form": LaunchForm(sent, user=request.user),
        "owner": request.user,
        "waiting": None if is_ready else folder,
    }
    answer = render(request, "web/launch/_mounts.html", context)
    answer["HX-Trigger-After-Settle"] = "folder-to-start-in" if is_ready and launches else "folder-created"
    return answer
