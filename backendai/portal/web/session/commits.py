"""Saves a running session as an own image."""

from __future__ import annotations

import logging
from uuid import UUID

from django import forms
from django.contrib import messages
from django.core.exceptions import NON_FIELD_ERRORS
from django.http import HttpResponse
from django.shortcuts import redirect, render
from django.utils import timezone
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy
from pydantic import ValidationError

from backendai.base.core.errors import Overloaded, UserError
from backendai.base.wire.usage import HomeLook
from backendai.domain.catalog.models import Image
from backendai.domain.compute.models import ComputeSession, Kernel
from backendai.domain.compute.services.images.commits import (
    commit_under_way,
    most_own_images,
    obstacle_to_commit,
    start_commit,
)
from backendai.domain.compute.status import ShareRight, Status
from backendai.gates.gateways.asking import NodeUnreachable, ask
from backendai.gates.gateways.tickets import address_of
from backendai.portal.web.frame.requests import PageRequest, signed_in
from backendai.portal.web.session.boxes import box
from backendai.portal.web.session.pages import asks_for_part, find_session

logger = logging.getLogger(__name__)
_LARGEST_ANSWER = 4096


def home_of(session: ComputeSession) -> HomeLook | None:
    """Return the contents of the main kernel's home folder. None if the agent cannot answer within 6 seconds."""
    kernel: Kernel | None = session.kernels.select_related("agent").order_by("rank").first()
    if kernel is None or kernel.agent is None or kernel.status != Status.RUNNING:
        return None
    try:
        reply = ask(address_of(kernel, "home"), largest=_LARGEST_ANSWER, connect=2.0, read=4.0)
        return HomeLook.model_validate_json(reply.content) if reply.status == 200 else None
    except (NodeUnreachable, Overloaded, ValidationError) as error:
        logger.warning("agent %s does not tell what is in a home folder: %s", kernel.agent.name, error)
        return None


class CommitForm(forms.Form):
    """The name of the new image, which the service validates."""

    name = forms.CharField(
        label=gettext_lazy("Name of the image"),
        max_length=200,
        help_text=gettext_lazy("4 to 32 letters, digits, dashes and underscores."),
        widget=forms.TextInput(attrs={"autocomplete": "off", "spellcheck": "false", "autofocus": True}),
    )


@signed_in("GET", "POST")
def commit(request: PageRequest, session_id: UUID) -> HttpResponse:
    """Show the form for the image's name; on POST start saving. A script then gets 204, or the form with its error."""
    found = find_session(request, session_id)
    form = CommitForm(request.POST or None)
    if request.method == "POST" and form.is_valid():
        try:
            start_commit(request.user, found, form.cleaned_data["name"], now=timezone.now())
        except UserError as error:
            form.add_error("name" if error.field == "name" else NON_FIELD_ERRORS, error.message)
        else:
            if asks_for_part(request):
                return HttpResponse(status=204)
            messages.success(request, _("The session is being saved; the bell shows the progress."))
            return redirect("web:session", session_id=session_id)
    context = {
        "form": form,
        "under_way": commit_under_way(found),
        "number": Image.objects.own_of(request.user).count(),
        "most": most_own_images(request.user),
    }
    return box(request, found, "web/_session_commit.html", context)


@signed_in("GET")
def left_out(request: PageRequest, session_id: UUID) -> HttpResponse:
    """Show the owner the contents of the session's home folder, which the image does not include; 204 if unknown.

    The agent may take seconds to answer, so the form loads this separately.
    """
    found = find_session(request, session_id)
    may_be = found.owner_id == request.user.pk and obstacle_to_commit(found, None) is None
    home = home_of(found) if may_be else None
    if home is None:
        return HttpResponse(status=204)
    return render(request, "web/_session_left_out.html", {"home": home})


@signed_in("GET")
def disk(request: PageRequest, session_id: UUID) -> HttpResponse:
    """Show how full the disk of the session's main kernel is; 204 if its agent does not measure it.

    The agent may take seconds to answer, so the page loads this separately.
    """
    home = home_of(find_session(request, session_id, ShareRight.VIEW))
    if home is None or home.disk_used is None or not home.disk_limit:
        return HttpResponse(status=204)
    percent = min(round(100 * home.disk_used / home.disk_limit), 100)
    return render(request, "web/_session_disk.html", {"home": home, "percent": percent})
