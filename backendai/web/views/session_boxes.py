"""What opens over a session's panel, and is a page without scripts: why it is as it is, another name, its apps."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from django import forms
from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.http import HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.utils.http import urlencode
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_http_methods, require_safe

from backendai.compute.models import ComputeSession
from backendai.compute.services.apps import app_logs_of
from backendai.compute.services.logs import earlier_logs
from backendai.compute.services.renaming import rename_session
from backendai.core.errors import UserError
from backendai.web.detail.context import ending_context
from backendai.web.detail.explanation import explanation_of
from backendai.web.requests import PageRequest
from backendai.web.views.session import asks_for_part, find_session


class RenameForm(forms.Form):
    """A session's new name; the rule is the service's."""

    name = forms.CharField(
        label=gettext_lazy("Name"),
        max_length=200,
        help_text=gettext_lazy("4 to 64 letters, digits, dots, dashes and underscores."),
        widget=forms.TextInput(attrs={"autocomplete": "off", "spellcheck": "false", "autofocus": True}),
    )


@require_safe
@never_cache
@login_required
def info(request: PageRequest, session_id: UUID) -> HttpResponse:
    """Say why a session waits, or how it ended: since when, what was tried, with what numbers."""
    found = find_session(request, session_id)
    return box(request, found, "web/_session_info.html", {"why": explanation_of(found, request.user)})


@require_safe
@never_cache
@login_required
def variables(request: PageRequest, session_id: UUID) -> HttpResponse:
    """Show a session's environment variables with their values to its owner, and to nobody else."""
    return box(request, find_session(request, session_id), "web/_session_variables.html", {})


@require_safe
@never_cache
@login_required
def app_launcher(request: PageRequest, session_id: UUID) -> HttpResponse:
    """Show the apps of a session."""
    return box(request, find_session(request, session_id), "web/_session_apps.html", {})


@require_safe
@never_cache
@login_required
def log(request: PageRequest, session_id: UUID) -> HttpResponse:
    """Show the viewer of a session's log, to lie over a list; without a script it is a part of the session's page."""
    found = find_session(request, session_id)
    if not asks_for_part(request):
        kernel = urlencode({"kernel": request.GET["kernel"]}) if "kernel" in request.GET else ""
        return redirect(f"{reverse('web:session', args=[session_id])}?{kernel}#log")
    kernels = list(found.kernels.select_related("agent"))
    context = {"kernels": kernels, "app_logs": app_logs_of(found, next(iter(kernels), None))}
    context["earlier_logs"] = earlier_logs(kernels)
    return box(request, found, "web/_session_log.html", context)


@require_http_methods(["GET", "HEAD", "POST"])
@never_cache
@login_required
def rename(request: PageRequest, session_id: UUID) -> HttpResponse:
    """Ask for a new name; on POST give it. A script gets 204 when it is done, and the form with the mistake if not."""
    found = find_session(request, session_id)
    form = RenameForm(request.POST or None, initial={"name": found.name})
    other = ""
    if request.method == "POST" and form.is_valid():
        try:
            rename_session(found, request.user, form.cleaned_data["name"])
        except UserError as error:
            form.add_error("name", error.message)
            other = error.details.get("session", "")
        else:
            if asks_for_part(request):
                return HttpResponse(status=204)
            messages.success(request, _("The session is renamed."))
            return redirect("web:session", session_id=session_id)
    return box(request, found, "web/_session_rename.html", {"form": form, "other": other})


def box(request: PageRequest, session: ComputeSession, part: str, context: dict[str, Any]) -> HttpResponse:
    """Return a part as the box over a session's panel, or as a page of its own where no script asks for it."""
    about = ending_context(session, request.user) | context
    if asks_for_part(request):
        return render(request, part, about | {"in_dialog": True})
    return render(request, "web/session_box.html", about | {"part": part})
