"""Keeping an idle session running for longer."""

from __future__ import annotations

from uuid import UUID

from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.http import HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.utils import timezone
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_POST

from backendai.compute.services.idle import extend_idle
from backendai.core.errors import UserError
from backendai.texts.sentences import in_words
from backendai.texts.translation import gettext as _
from backendai.web.detail.context import detail_context
from backendai.web.requests import PageRequest
from backendai.web.views.session import DRAWER, asks_for_part, find_session


@require_POST
@never_cache
@login_required
def longer(request: PageRequest, session_id: UUID, checker_id: int) -> HttpResponse:
    """Put the end that an idle checker announces off; a script gets the panel as it is then."""
    found, now = find_session(request, session_id), timezone.now()
    part = asks_for_part(request)
    try:
        until = extend_idle(found, request.user, checker_id, now=now)
    except UserError as error:
        if not part:
            messages.error(request, in_words(error.message))
    else:
        if not part:
            text = _("It may run until %(until)s at least.")
            messages.success(request, text % {"until": f"{timezone.localtime(until):%Y-%m-%d %H:%M %Z}"})
    if part:
        context = detail_context(found, request.user, in_drawer=request.GET.get("in") == DRAWER, now=now)
        return render(request, "web/_session_panel.html", context)
    return redirect(reverse("web:session", args=[session_id]) + "#idle-checks")
