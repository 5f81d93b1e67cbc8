"""The dialog for the title and arguments of an app."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from django.contrib import messages
from django.http import Http404, HttpResponse
from django.shortcuts import redirect
from django.utils.translation import gettext as _

from backendai.base.core.app_arguments import LONGEST_VALUE
from backendai.base.core.errors import NotFound, UserError
from backendai.domain.compute.models import LONGEST_APP_TITLE
from backendai.domain.compute.services.apps.settings import change_app, find_app
from backendai.portal.web.frame.requests import PageRequest, signed_in
from backendai.portal.web.session.boxes import box
from backendai.portal.web.session.pages import asks_for_part, find_session

_PREFIX = "argument:"


@signed_in("GET", "POST")
def app_settings(request: PageRequest, session_id: UUID, service: str) -> HttpResponse:
    """Show the form for an app's title and arguments; on POST save them."""
    found = find_session(request, session_id)
    try:
        app = find_app(found, service)
    except NotFound as error:
        raise Http404 from error
    title = request.POST.get("title", "" if app.title == app.usual_title else app.title)
    typed = {name: request.POST.get(f"{_PREFIX}{name}", value) for name, value in app.arguments.items()}
    mistakes: dict[str, str] = {}
    if request.method == "POST":
        try:
            change_app(request.user, found, service, title=title, arguments=typed)
        except UserError as error:
            mistakes = {error.field or "": error.message}
        else:
            if asks_for_part(request):
                return box(request, found, "web/_session_apps.html", {})
            messages.success(request, _("The settings of the app are saved."))
            return redirect("web:app_launcher", session_id=session_id)
    fields = [(name, f"{_PREFIX}{name}", value, mistakes.pop(f"arguments.{name}", "")) for name, value in typed.items()]
    context: dict[str, Any] = {"app": app, "title": title, "fields": fields, "mistake": mistakes.pop("title", "")}
    context |= {"other": next(iter(mistakes.values()), ""), "longest": LONGEST_APP_TITLE, "most": LONGEST_VALUE}
    return box(request, found, "web/_session_app_settings.html", context)
