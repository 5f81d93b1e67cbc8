"""The list of folders, invitations, the trash of folders, and the form for a new one."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from django.contrib import messages
from django.http import HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.urls import reverse
from django.utils import timezone

from backendai.base.core.errors import UserError
from backendai.base.texts.messages import in_words
from backendai.base.texts.translation import gettext as _
from backendai.domain.storage.limits import held_by, limits_of
from backendai.domain.storage.models import Folder, FolderGrant
from backendai.domain.storage.querysets import MANAGE
from backendai.domain.storage.services import (
    accept_invitation,
    decline_invitation,
    leave_folder,
    purge_folder,
    restore_folder,
    retry_folder,
    trash_folder,
)
from backendai.domain.storage.status import FolderStatus
from backendai.portal.web.account.menu import blame
from backendai.portal.web.folders.access import find_folder, try_to
from backendai.portal.web.folders.forms import CreateForm
from backendai.portal.web.folders.listing import ONLY, ListQuery, page_of, tabs_of, trash_of
from backendai.portal.web.frame.requests import PageRequest, signed_in
from backendai.portal.web.launch.fields.mount_fields import is_uuid

_MOST_AT_ONCE = 100


@signed_in("GET")
def folders(request: PageRequest) -> HttpResponse:
    """Show the requested folders; for htmx only the list."""
    asked = ListQuery.of(request.GET)
    page = page_of(request.user, asked, request.GET.get("page", "1"))
    may_trash = any(one.rights == MANAGE and one.status == FolderStatus.READY for one in page)
    context = {"asked": asked, "page": page, "may_trash": may_trash}
    context |= {"tabs": tabs_of(request.user, asked), "columns": _columns(asked)}
    context["uses"] = [(name, title, name == asked.only) for name, (title, _rule) in ONLY.items()]
    if request.htmx and not request.htmx.boosted:
        return render(request, "web/folders/_list.html", context)
    invitations = FolderGrant.objects.pending_for(request.user).select_related("folder", "created_by")
    context |= {"invitations": list(invitations), "form": CreateForm(user=request.user), "room": _room(request)}
    return render(request, "web/folders/list.html", context | {"section": "folders", "tab": "list"})


@signed_in("GET", "POST")
def create(request: PageRequest) -> HttpResponse:
    """Show the form for a new folder; on POST, create the folder and redirect to its page. For htmx, which sends the
    form of a dialog, return only the form with its faults."""
    form = CreateForm(request.POST or None, user=request.user)
    if request.method == "POST" and form.is_valid():
        try:
            address = reverse("web:folder", args=[form.create(request.user, timezone.now()).pk])
            return HttpResponse(headers={"HX-Redirect": address}) if request.htmx else redirect(address)
        except UserError as error:
            blame(form, error)
    context = {"section": "folders", "form": form, "room": _room(request)}
    if request.htmx:  # it swaps nothing for a 422
        for name in list(form.errors)[:1]:
            if name in form.fields:
                form.fields[name].widget.attrs["autofocus"] = True
        return render(request, "web/folders/_new_form.html", context | {"in_dialog": True})
    return render(request, "web/folders/new.html", context, status=422 if form.is_bound else 200)


@signed_in("POST")
def answer_invitation(request: PageRequest, grant_id: int) -> HttpResponse:
    """Accept or decline an invitation to a folder."""
    grant: FolderGrant = get_object_or_404(FolderGrant.objects.pending_for(request.user), pk=grant_id)
    name, now = grant.folder.name, timezone.now()

    def accept() -> str:
        accept_invitation(grant, request.user, now=now)
        return _("%(name)s is now among your folders.") % {"name": name}

    def decline() -> str:
        decline_invitation(grant, request.user, now=now)
        return _("The invitation to %(name)s is declined.") % {"name": name}

    try_to(request, accept if request.POST.get("answer") == "accept" else decline)
    return redirect("web:folders")


@signed_in("GET")
def trash(request: PageRequest) -> HttpResponse:
    """Show the folders in the trash."""
    context = {"section": "folders", "tab": "trash", "rows": list(trash_of(request.user)[:500])}
    return render(request, "web/folders/trash.html", context)


@signed_in("GET", "POST")
def purge(request: PageRequest, folder_id: UUID) -> HttpResponse:
    """Ask for the folder's name as confirmation; on POST purge the folder."""
    folder = find_folder(request, folder_id, "manage")
    if folder.status not in (FolderStatus.TRASHED, FolderStatus.ERROR):
        messages.error(request, _("Move %(name)s to the trash first.") % {"name": folder.name})
        return redirect("web:folder_settings", folder_id)
    if request.method == "POST":

        def purge() -> str:
            purge_folder(folder, request.user, typed_name=request.POST.get("typed", "").strip(), now=timezone.now())
            return _("%(name)s is being deleted.") % {"name": folder.name}

        if try_to(request, purge):
            return redirect("web:folders_trash")
        return redirect("web:folder_purge", folder_id)
    return render(request, "web/folders/purge.html", {"section": "folders", "folder": folder})


@signed_in("POST")
def change_state(request: PageRequest, folder_id: UUID, verb: str) -> HttpResponse:
    """Move a folder to the trash, restore it, retry its creation, or leave it."""
    folder, now = find_folder(request, folder_id), timezone.now()

    def act() -> str:
        if verb == "trash":
            trash_folder(folder, request.user, now=now)
            return _("%(name)s is in the trash.") % {"name": folder.name}
        if verb == "restore":
            restore_folder(folder, request.user, name=request.POST.get("name", "").strip(), now=now)
            return _("%(name)s is restored.") % {"name": folder.name}
        if verb == "retry":
            retry_folder(folder, request.user, now=now)
            return _("%(name)s is being created again.") % {"name": folder.name}
        leave_folder(folder, request.user, now=now)
        return _("You have left %(name)s.") % {"name": folder.name}

    if not try_to(request, act):
        is_in_trash = folder.status == FolderStatus.TRASHED
        return redirect("web:folders_trash") if is_in_trash else redirect("web:folder_settings", folder_id)
    return redirect("web:folder", folder_id) if verb in ("restore", "retry") else redirect("web:folders")


@signed_in("POST")
def change_many(request: PageRequest) -> HttpResponse:
    """Move the selected folders to the trash, or restore them. Names each folder that stayed, with the reason."""
    is_restored, now = request.POST.get("verb") == "restore", timezone.now()
    ids = [pk for pk in dict.fromkeys(request.POST.getlist("folder")) if is_uuid(pk)][:_MOST_AT_ONCE]
    rows = Folder.objects.visible_to(request.user).filter(pk__in=ids).select_related("host", "user", "project__domain")
    done = []
    for folder in rows.order_by("name", "pk"):
        try:
            (restore_folder if is_restored else trash_folder)(folder, request.user, now=now)
            done.append(folder.name)
        except UserError as error:
            told = {"name": folder.name, "why": in_words(error.message)}
            messages.error(request, _("%(name)s stays where it is. %(why)s") % told)
    if done:
        text = _("Restored: %(names)s.") if is_restored else _("In the trash: %(names)s.")
        messages.success(request, text % {"names": ", ".join(done)})
    elif not ids:
        messages.error(request, _("Select at least one folder."))
    return redirect("web:folders_trash" if is_restored else "web:folders")


@signed_in("GET")
def by_digits(request: PageRequest, digits: str) -> HttpResponse:
    """Redirect from the address of a folder's files to the folder's page."""
    least, most = UUID(hex=digits.ljust(32, "0")), UUID(hex=digits.ljust(32, "f"))
    rows = Folder.objects.visible_to(request.user)
    return redirect("web:folder", get_object_or_404(rows, pk__range=(least, most)).pk)


def _room(request: PageRequest) -> dict[str, Any]:
    """Return the number and size of the user's folders, with their limits."""
    (number, total), (most, most_bytes) = held_by(request.user), limits_of(request.user)
    return {"number": number, "total": total, "most": most, "most_bytes": most_bytes}


def _columns(asked: ListQuery) -> list[tuple[Any, str, str]]:
    names = [("name", _("Name")), ("owner", _("Owner")), ("size", _("Size")), ("created", _("Created"))]
    return [(title, *asked.heading(name)) for name, title in names]
