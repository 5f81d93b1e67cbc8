"""Ends the access of a session to a folder that is no longer shared with its owner."""

from __future__ import annotations

from uuid import UUID

from django.contrib import messages
from django.http import HttpResponse
from django.shortcuts import redirect, render
from django.utils import timezone

from backendai.base.core.errors import UserError
from backendai.base.texts.messages import in_words
from backendai.base.texts.translation import gettext as _
from backendai.base.texts.translation import ngettext
from backendai.domain.compute.services.life.folder_cuts import mount_to_cut, terminate_mounting_session
from backendai.domain.storage.models import Folder
from backendai.domain.storage.querysets import MANAGE
from backendai.gates.gateways.folder_cuts import unmount
from backendai.portal.web.folders.access import find_folder
from backendai.portal.web.frame.requests import PageRequest, signed_in


@signed_in("GET", "POST")
def cut(request: PageRequest, folder_id: UUID, session_id: UUID) -> HttpResponse:
    """Ask for confirmation; on POST unmount the folder in the session, or end the session."""
    folder = find_folder(request, folder_id, MANAGE)
    try:
        if request.method != "POST":
            mount = mount_to_cut(request.user, folder, session_id)
            context = {"section": "folders", "folder": folder, "mount": mount}
            return render(request, "web/folders/cut_off.html", context)
        if request.POST.get("how") == "unmount":
            messages.success(request, _unmounted(request, folder, session_id))
            return redirect("web:folder_sharing", folder_id)
        mount = terminate_mounting_session(request.user, folder, session_id, now=timezone.now())
    except UserError as error:
        messages.error(request, in_words(error.message))
    else:
        messages.success(request, _("%(name)s is being terminated.") % {"name": mount.session.name})
    return redirect("web:folder_sharing", folder_id)


def _unmounted(request: PageRequest, folder: Folder, session_id: UUID) -> str:
    mount, ended = unmount(request.user, folder, session_id, now=timezone.now())
    text = ngettext(
        "%(name)s goes on without the folder. %(number)s program that used it was ended.",
        "%(name)s goes on without the folder. %(number)s programs that used it were ended.",
        ended,
    )
    return text % {"name": mount.session.name, "number": ended}
