"""Postpones the end of idle sessions."""

from __future__ import annotations

from uuid import UUID

from django.contrib import messages
from django.http import HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.utils import timezone

from backendai.base.core.errors import UserError
from backendai.base.texts.messages import in_words
from backendai.base.texts.translation import gettext as _
from backendai.base.texts.translation import ngettext
from backendai.domain.compute.services.life.idle_extension import Extended, extend_idle, keep_running
from backendai.portal.web.frame.requests import PageRequest, ids_in, signed_in, way_back
from backendai.portal.web.session.context import detail_context
from backendai.portal.web.session.pages import DRAWER, asks_for_part, find_session

_MOST_NAMED = 10


@signed_in("POST")
def longer(request: PageRequest, session_id: UUID, checker_id: int) -> HttpResponse:
    """Postpone the end that an idle checker has announced. A script gets the new panel."""
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
            messages.success(request, text % {"until": f"{until:%Y-%m-%d %H:%M} UTC"})
    if part:
        context = detail_context(found, request.user, in_drawer=request.GET.get("in") == DRAWER, now=now)
        return render(request, "web/_session_panel.html", context)
    return redirect(reverse("web:session", args=[session_id]) + "#idle-checks")


@signed_in("POST")
def keep_many(request: PageRequest) -> HttpResponse:
    """Postpone the announced ends of the sessions in the form.

    A script gets the message, and the order to reload everything.
    """
    ids = ids_in(request.POST.getlist("session"))
    try:
        if not ids:
            raise UserError("Select at least one session.", code="nothing-selected")
        kept = keep_running(request.user, ids, now=timezone.now())
    except UserError as error:
        messages.error(request, in_words(error.message))
    else:
        _say(request, kept)
    if request.htmx:
        answer = render(request, "web/_messages.html")
        answer["HX-Trigger"] = "look-again-at-all"
        return answer
    return redirect(way_back(request))


def _say(request: PageRequest, kept: Extended) -> None:
    if number := len(kept.until):
        text = ngettext("%(number)s session keeps running.", "%(number)s sessions keep running.", number)
        messages.success(request, text % {"number": number})
    for name in kept.refused[:_MOST_NAMED]:
        messages.error(request, _("%(name)s: no more extensions.") % {"name": name})
    if (more := len(kept.refused) - _MOST_NAMED) > 0:
        text = ngettext("%(number)s more cannot be extended.", "%(number)s more cannot be extended.", more)
        messages.error(request, text % {"number": more})
    if not kept.until and not kept.refused:
        messages.info(request, _("These sessions have no active idle warning: nothing was changed."))
