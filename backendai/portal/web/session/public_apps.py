"""Makes an app public or private, and leads from an app's address to the portal."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from django.contrib import messages
from django.http import Http404, HttpResponse
from django.shortcuts import get_object_or_404, redirect
from django.utils import timezone
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy as _l

from backendai.base.core.errors import NotFound, UserError
from backendai.base.texts.messages import in_words
from backendai.domain.compute.models import ComputeSession, PublicFor
from backendai.domain.compute.services.apps.of_session import behind_label
from backendai.domain.compute.services.apps.public import close_to_others, open_to_everybody
from backendai.domain.compute.services.apps.settings import find_app
from backendai.domain.compute.status import ShareRight
from backendai.portal.web.frame.requests import PageRequest, signed_in
from backendai.portal.web.session.boxes import box
from backendai.portal.web.session.pages import asks_for_part, find_session

_LENGTHS = (
    (PublicFor.HOUR, _l("1 hour")),
    (PublicFor.DAY, _l("1 day")),
    (PublicFor.SESSION, _l("until the session ends")),
)


@signed_in("GET", "POST")
def public_app(request: PageRequest, session_id: UUID, service: str) -> HttpResponse:
    """Show the form for how long an app is public; on POST make it public, or private again."""
    found = find_session(request, session_id)
    if request.method != "POST":
        return _ask(request, found, service)
    try:
        if request.POST.get("open") != "yes":
            close_to_others(request.user, found, service)
        elif find_app(found, service).gives_shell and request.POST.get("confirm") != "yes":
            return _ask(request, found, service, _("Confirm that anyone with the link can run commands as you."))
        else:
            public_for = _length(request.POST.get("public_for", PublicFor.DAY))
            open_to_everybody(request.user, found, service, now=timezone.now(), public_for=public_for)
    except UserError as error:
        return _back(request, found, in_words(error.message))
    return _back(request, found)


@signed_in("GET")
def by_label(request: PageRequest, label: str) -> HttpResponse:
    """Redirect from the first part of an app's host name to the page that opens the app. 404 for sessions that are not
    visible.
    """
    behind = behind_label(label)
    if behind is None:
        raise Http404
    sessions, service = behind
    rows = ComputeSession.objects.open_to(request.user, ShareRight.USE)
    session: ComputeSession = get_object_or_404(rows, pk__in=sessions.values("pk"))
    return redirect("web:app", session_id=session.pk, service=service)


def _length(text: str) -> PublicFor:
    if text not in PublicFor.values:
        raise UserError(
            "{text} is not allowed: choose one of {values}.",
            text=repr(text[:32]),
            values=PublicFor.values,
            field="public_for",
        )
    return PublicFor(text)


def _ask(request: PageRequest, session: ComputeSession, service: str, mistake: str = "") -> HttpResponse:
    try:
        app = find_app(session, service)
    except NotFound as error:
        raise Http404 from error
    context: dict[str, Any] = {"app": app, "lengths": _LENGTHS, "mistake": mistake, "is_unconfirmed": bool(mistake)}
    context["chosen"] = request.POST.get("public_for", PublicFor.DAY)
    return box(request, session, "web/_session_public_app.html", context)


def _back(request: PageRequest, session: ComputeSession, mistake: str = "") -> HttpResponse:
    if asks_for_part(request):
        return box(request, session, "web/_session_apps.html", {"mistake": mistake} if mistake else {})
    if mistake:
        messages.error(request, mistake)
    return redirect("web:app_launcher", session_id=session.pk)
