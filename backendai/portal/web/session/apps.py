"""Opens an app of a session from the session's page."""

from __future__ import annotations

from typing import cast
from uuid import UUID

from csp.constants import SELF
from csp.decorators import csp_update
from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.utils import timezone

from backendai.base.core.errors import UserError
from backendai.domain.accounts.sign_in.credentials import Credential
from backendai.domain.compute.models import ComputeSession
from backendai.domain.compute.services.apps.of_session import AppEntry, app_domain, make_entry
from backendai.domain.compute.status import ShareRight
from backendai.portal.web.frame.app_reach import why_out_of_reach
from backendai.portal.web.frame.requests import PageRequest, signed_in


@signed_in("GET")
def app(request: PageRequest, session_id: UUID, service: str) -> HttpResponse:
    """Show a form that posts a one-time code to the app's origin, and submits itself.

    Nothing is stored; the app's origin checks the code.
    """
    rows = ComputeSession.objects.open_to(request.user, ShareRight.USE).select_related("image", "resource_group")
    session: ComputeSession = get_object_or_404(rows, pk=session_id)
    credential = Credential(login=request.session.session_key or "")
    obstacle = why_out_of_reach(request.get_host(), app_domain(session))
    try:
        host, now = request.get_host(), timezone.now()
        entry = None if obstacle else make_entry(request.user, session, service, credential, now, portal=host)
    except UserError as error:
        obstacle, entry = error.message, None
    if entry is None:
        messages.error(request, obstacle)
        return redirect("web:session", session_id=session_id)
    return _form(request, session, entry)


def _form(request: PageRequest, session: ComputeSession, entry: AppEntry) -> HttpResponse:
    def page(request: HttpRequest) -> HttpResponse:
        return render(request, "web/app.html", {"section": "sessions", "session": session, "entry": entry})

    # The page's forms may go to this one other origin.
    return cast(HttpResponse, csp_update({"form-action": [SELF, entry.app.url]})(page)(request))
