"""One compute session: its panel, history, outlook, usage and termination."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, cast
from uuid import UUID

from csp.constants import UNSAFE_INLINE
from csp.decorators import csp_update
from django.contrib import messages
from django.http import HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.utils import timezone

from backendai.base.core.errors import UserError
from backendai.base.texts.messages import in_words
from backendai.base.texts.translation import gettext as _
from backendai.domain.compute.models import ComputeSession
from backendai.domain.compute.querysets import SessionQuerySet
from backendai.domain.compute.services.apps.public import is_public
from backendai.domain.compute.services.life.ending import terminate_session
from backendai.domain.compute.services.life.home_retention import home_under_way
from backendai.domain.compute.status import ShareRight
from backendai.domain.planning.queue_heads import holders_beside
from backendai.portal.web.frame.requests import PageRequest, signed_in
from backendai.portal.web.session.context import detail_context, ending_context, waiting_for
from backendai.portal.web.session.reasons.history import history_context
from backendai.portal.web.session.reasons.outlook import outlook_of
from backendai.portal.web.session.usage import usage_of

DRAWER = "drawer"
_ASK_NO_MORE = 286  # htmx ends its polling
_View = TypeVar("_View", bound=Callable[..., HttpResponse])


def with_inline_styles(view: _View) -> _View:
    """Allow inline styles in the page, as the terminal needs them."""
    return cast(_View, csp_update({"style-src": [UNSAFE_INLINE]})(view))


@signed_in("GET")
@with_inline_styles
def session(request: PageRequest, session_id: UUID) -> HttpResponse:
    """Show a session as a page; for htmx only its panel, to lie over a list."""
    in_drawer = asks_for_part(request)
    return render(
        request,
        "web/_session_drawn.html" if in_drawer else "web/session.html",
        _context(request, session_id, in_drawer=in_drawer),
    )


@signed_in("GET")
def session_panel(request: PageRequest, session_id: UUID) -> HttpResponse:
    """Return the live parts of the panel."""
    in_drawer = request.GET.get("in") == DRAWER
    return render(request, "web/_session_panel.html", _context(request, session_id, in_drawer=in_drawer))


@signed_in("GET")
def history(request: PageRequest, session_id: UUID) -> HttpResponse:
    """Show the session's scheduling history, filtered and sorted. For htmx only the rows, or the dialog."""
    found = find_session(request, session_id, ShareRight.VIEW)
    context = ending_context(found, request.user) | history_context(found, request.GET)
    if asks_for_part(request):
        rows = request.htmx.target == "history-rows"
        return render(request, "web/_history_rows.html" if rows else "web/_history_box.html", context)
    return render(request, "web/history.html", context)


@signed_in("GET")
def outlook(request: PageRequest, session_id: UUID) -> HttpResponse:
    """Show which changes would start a pending session now; for htmx only this part, empty for other sessions."""
    found = find_session(request, session_id)
    ahead = outlook_of(found, request.user, now=timezone.now())
    context = {"outlook": ahead} | ending_context(found, request.user)
    if ahead and ahead.lacks_room and not ahead.starts:
        context["holders"] = holders_beside(found, request.user)
    return render(request, "web/_session_outlook.html" if asks_for_part(request) else "web/outlook.html", context)


@signed_in("GET")
def usage(request: PageRequest, session_id: UUID) -> HttpResponse:
    """Show the measured usage of a session; for htmx only the charts, which reload until the session has ended."""
    found = find_session(request, session_id, ShareRight.VIEW)
    kernels = list(found.kernels.all())
    context = {"usage": usage_of(found, kernels, request.GET, now=timezone.now()), "kernels": kernels}
    if asks_for_part(request) and context["usage"]:
        status = _ASK_NO_MORE if found.is_terminal else 200
        return render(request, "web/_session_usage_shown.html", context, status=status)
    return render(request, "web/usage.html", ending_context(found, request.user) | context)


@signed_in("GET", "POST")
def terminate(request: PageRequest, session_id: UUID) -> HttpResponse:
    """Ask for confirmation; on POST terminate the session. A script then gets 204."""
    found = find_session(request, session_id)
    if request.method != "POST":
        return _ask(request, found)
    try:
        ended = terminate_session(found, request.user, force=request.POST.get("force") == "on")
    except UserError as error:
        if asks_for_part(request):
            return _ask(request, found, in_words(error.message))
        messages.error(request, in_words(error.message))
    else:
        if asks_for_part(request):
            return HttpResponse(status=204)
        text = _("%(name)s was cancelled before it ran.") if ended.cancelled else _("%(name)s is being terminated.")
        messages.success(request, text % {"name": found.name})
    return redirect("web:session", session_id=session_id)


def _ask(request: PageRequest, found: ComputeSession, mistake: str = "") -> HttpResponse:
    part = asks_for_part(request)
    before = waiting_for(found, request.user)
    context = ending_context(found, request.user) | {"before": before, "in_dialog": part, "mistake": mistake}
    context["home_kept"] = home_under_way(found)
    return render(request, "web/_terminate_form.html" if part else "web/terminate.html", context)


def find_session(request: PageRequest, session_id: UUID, shared: ShareRight | None = None) -> ComputeSession:
    """Return the session with the related rows of its pages; 404 if it is not visible. ``shared``: the right of a share
    that is enough, too."""
    sessions: SessionQuerySet = ComputeSession.objects.annotate(is_public=is_public())
    visible = sessions.visible_to(request.user) if shared is None else sessions.open_to(request.user, shared)
    related = ("image", "resource_group", "owner", "launched_by", "project", "start_forecast", "stop_schedule")
    rows = visible.select_related(*related)
    found: ComputeSession = get_object_or_404(rows, pk=session_id)
    return found


def asks_for_part(request: PageRequest) -> bool:
    """Return whether a script requests a part of the page."""
    return bool(request.htmx) and not request.htmx.boosted


def _context(request: PageRequest, session_id: UUID, *, in_drawer: bool) -> dict[str, Any]:
    found = find_session(request, session_id, ShareRight.VIEW)
    return detail_context(found, request.user, in_drawer=in_drawer, now=timezone.now())
