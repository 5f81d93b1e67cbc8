"""Terminates many sessions from a list, after a confirmation, and reports the result of each."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from uuid import UUID

from django.contrib import messages
from django.http import HttpResponse
from django.shortcuts import redirect, render
from django.utils import timezone

from backendai.base.core.errors import UserError
from backendai.base.texts.messages import in_words
from backendai.base.texts.translation import gettext as _
from backendai.base.texts.translation import ngettext
from backendai.domain.compute.models import ComputeSession
from backendai.domain.compute.services.life.ending_many import MOST_ENDED, EndedMany, terminate_sessions
from backendai.domain.compute.status import LIVE, Status
from backendai.portal.web.frame.requests import PageRequest, ids_in, signed_in, way_back

_MOST_NAMED = 20


@signed_in("POST")
def terminate_many(request: PageRequest) -> HttpResponse:
    """Ask for confirmation; then terminate the selected sessions, and name those that could not be terminated."""
    ids, back = ids_in(request.POST.getlist("session")[: MOST_ENDED + 1]), way_back(request)
    if not ids:
        messages.error(request, _("Select at least one session."))
        return redirect(back)
    if not request.POST.get("confirmed"):
        return render(request, "web/terminate_many.html", _question(request, ids) | {"back": back})
    try:
        done = terminate_sessions(request.user, ids, force=request.POST.get("force") == "on", now=timezone.now())
    except UserError as error:
        messages.error(request, in_words(error.message))
    else:
        _say(request, done)
    return redirect(back)


def _question(request: PageRequest, ids: Sequence[UUID]) -> dict[str, Any]:
    visible = ComputeSession.objects.visible_to(request.user)
    rows = (
        visible.filter(pk__in=ids)
        .select_related("owner")
        .only("name", "status", "session_type", "may_be_stopped", "owner__email")
    )
    chosen = [one for one in rows.order_by("name", "pk") if one.status in LIVE]
    waiting = visible.pending().filter(depends_on__in=[one.pk for one in chosen])
    before = waiting.exclude(pk__in=ids).order_by("name", "pk").distinct()
    own = all(one.owner_id == request.user.pk for one in chosen)
    pending = sum(one.status == Status.PENDING for one in chosen)
    return {
        "section": "sessions",
        "chosen": chosen,
        "left_out": len(ids) - len(chosen),
        "pending": pending,
        "placed": len(chosen) - pending,
        "before": list(before[:_MOST_NAMED]),
        "may_stop": any(one.is_running and one.can_stop for one in chosen),
        "may_force": own or request.user.is_superadmin,
    }


def _say(request: PageRequest, done: EndedMany) -> None:
    # By force, those are ended too that were on their way out.
    cancelled, ending = len(done.ended.cancelled), len(done.ended.terminating | done.ended.forced)
    if ending:
        text = ngettext("%(number)s session is being terminated.", "%(number)s sessions are being terminated.", ending)
        messages.success(request, text % {"number": ending})
    if cancelled:
        text = ngettext(
            "%(number)s session was cancelled before it ran.",
            "%(number)s sessions were cancelled before they ran.",
            cancelled,
        )
        messages.success(request, text % {"number": cancelled})
    for one in done.refused[:_MOST_NAMED]:
        messages.error(request, f"{one.name}: {one.message}" if one.name else one.message)
    if (more := len(done.refused) - _MOST_NAMED) > 0:
        text = ngettext("%(number)s more was left.", "%(number)s more were left.", more)
        messages.error(request, text % {"number": more})
