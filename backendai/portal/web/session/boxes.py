"""Dialogs over a session's panel, which are pages without scripts: its reason, new name, labels, apps and log."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from django import forms
from django.contrib import messages
from django.http import HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.utils.http import urlencode
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from backendai.base.core.errors import UserError
from backendai.domain.compute.models import ComputeSession
from backendai.domain.compute.services.apps.of_session import app_logs_of
from backendai.domain.compute.services.launching.renaming import label_session, rename_session
from backendai.domain.compute.services.launching.sharing import right_of
from backendai.domain.compute.services.records.logs import earlier_logs
from backendai.domain.compute.status import ShareRight
from backendai.portal.web.frame.label_fields import LabelFields
from backendai.portal.web.frame.requests import PageRequest, signed_in
from backendai.portal.web.session.context import ending_context
from backendai.portal.web.session.pages import asks_for_part, find_session
from backendai.portal.web.session.reasons.explanation import explanation_of


class RenameForm(forms.Form):
    """A session's new name, which the service validates."""

    name = forms.CharField(
        label=gettext_lazy("Name"),
        max_length=200,
        help_text=gettext_lazy("4 to 64 letters, digits, dots, dashes and underscores."),
        widget=forms.TextInput(attrs={"autocomplete": "off", "spellcheck": "false", "autofocus": True}),
    )


@signed_in("GET")
def info(request: PageRequest, session_id: UUID) -> HttpResponse:
    """Show why a session waits or how it ended, with all details."""
    found = find_session(request, session_id, ShareRight.VIEW)
    return box(request, found, "web/_session_info.html", {"why": explanation_of(found, request.user)})


@signed_in("GET")
def variables(request: PageRequest, session_id: UUID) -> HttpResponse:
    """Show a session's environment variables; their values only to its owner."""
    return box(request, find_session(request, session_id), "web/_session_variables.html", {})


@signed_in("GET")
def app_launcher(request: PageRequest, session_id: UUID) -> HttpResponse:
    """Show the apps of a session."""
    return box(request, find_session(request, session_id, ShareRight.USE), "web/_session_apps.html", {})


@signed_in("GET")
def log(request: PageRequest, session_id: UUID) -> HttpResponse:
    """Show the log viewer of a session over a list; without a script redirect to the session's page."""
    found = find_session(request, session_id, ShareRight.VIEW)
    if not asks_for_part(request):
        kernel = urlencode({"kernel": request.GET["kernel"]}) if "kernel" in request.GET else ""
        return redirect(f"{reverse('web:session', args=[session_id])}?{kernel}#log")
    kernels = list(found.kernels.select_related("agent"))
    apps = app_logs_of(found, next(iter(kernels), None)) if right_of(request.user, found) != ShareRight.VIEW else []
    context = {"kernels": kernels, "app_logs": apps, "earlier_logs": earlier_logs(kernels)}
    return box(request, found, "web/_session_log.html", context)


@signed_in("GET", "POST")
def rename(request: PageRequest, session_id: UUID) -> HttpResponse:
    """Show the form for a new name; on POST save it. A script then gets 204, or the form with its error."""
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


@signed_in("GET", "POST")
def labels(request: PageRequest, session_id: UUID) -> HttpResponse:
    """Show the form of labels and note; on POST save them. A script then gets 204, or the form with its errors."""
    found = find_session(request, session_id)
    form = LabelFields(request.POST or None, initial={"labels": found.labels, "note": found.note})
    if request.method == "POST" and form.is_valid():
        data = form.cleaned_data
        try:
            label_session(found, request.user, labels=dict.fromkeys(found.labels) | data["labels"], note=data["note"])
        except UserError as error:
            form.add_error(error.field, error.message)
        else:
            if asks_for_part(request):
                return HttpResponse(status=204)
            messages.success(request, _("Labels and note are saved."))
            return redirect("web:session", session_id=session_id)
    return box(request, found, "web/_session_labels.html", {"form": form})


def box(request: PageRequest, session: ComputeSession, part: str, context: dict[str, Any]) -> HttpResponse:
    """Return a part as a dialog over the session's panel; without a script as a page."""
    about = ending_context(session, request.user) | context
    if asks_for_part(request):
        return render(request, part, about | {"in_dialog": True})
    return render(request, "web/session_box.html", about | {"part": part})
