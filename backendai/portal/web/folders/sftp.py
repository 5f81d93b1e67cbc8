"""Access to all folders of the user by SFTP: commands, and the session that serves them."""

from __future__ import annotations

from typing import Any

from django.contrib import messages
from django.http import HttpResponse
from django.shortcuts import redirect, render
from django.utils import timezone

from backendai.base.core.errors import UserError
from backendai.base.texts.messages import in_words
from backendai.domain.compute.services.launching.system_sessions import left_out, open_folders, session_of
from backendai.gates.gateways.ssh_access import folder_lines_for, site_for
from backendai.portal.web.frame.requests import PageRequest, signed_in


@signed_in("GET", "POST")
def sftp(request: PageRequest) -> HttpResponse:
    """Show the SFTP commands; POST starts the session that serves the folders."""
    site = site_for(request.get_host())
    if request.method == "POST" and site is not None:
        try:
            open_folders(request.user, timezone.now())
        except UserError as error:
            messages.error(request, in_words(error.message))
        return redirect("web:folders_sftp")
    session = session_of(request.user)
    context: dict[str, Any] = {"site": site, "session": session}
    context["left_out"] = left_out(request.user, session) if session is not None else []
    if site is not None:
        context |= {"lines": folder_lines_for(site), "has_keys": request.user.ssh_keys.exists()}
    return render(request, "web/folders/sftp.html", context)
