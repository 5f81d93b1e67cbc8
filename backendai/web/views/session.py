"""One compute session: its state, kernels, history, terminal and log, and how it is ended."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, cast
from uuid import UUID

from csp.constants import UNSAFE_INLINE
from csp.decorators import csp_update
from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.http import HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.utils import timezone
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_http_methods, require_safe

from backendai.compute.models import ComputeSession
from backendai.compute.services.ending import terminate_session
from backendai.core.errors import UserError
from backendai.web.advice import drained_agents, silent_agents, try_text, wait_of, what_helps, what_to_change
from backendai.web.history import history_context
from backendai.web.outlook import outlook_of
from backendai.web.requests import PageRequest

_MOST_NAMED = 20
_View = TypeVar("_View", bound=Callable[..., HttpResponse])


def _with_inline_styles(view: _View) -> _View:
    """Allow style elements in the page: the terminal writes its own."""
    return cast(_View, csp_update({"style-src": [UNSAFE_INLINE]})(view))


@require_safe
@never_cache
@login_required
@_with_inline_styles
def session(request: PageRequest, session_id: UUID) -> HttpResponse:
    """Show a session."""
    context = _context(request, session_id)
    return render(request, "web/session.html", context | history_context(context["session"], {}))


@require_safe
@never_cache
@login_required
def session_panel(request: PageRequest, session_id: UUID) -> HttpResponse:
    """Return the parts of the page that change while a session lives."""
    return render(request, "web/_session_panel.html", _context(request, session_id))


@require_safe
@never_cache
@login_required
def history(request: PageRequest, session_id: UUID) -> HttpResponse:
    """Show the session's scheduling history, narrowed and sorted; htmx asks for the rows alone."""
    found = _find(request, session_id)
    context = {"section": "sessions", "session": found} | history_context(found, request.GET)
    part = request.htmx and not request.htmx.boosted
    return render(request, "web/_history_rows.html" if part else "web/history.html", context)


@require_safe
@never_cache
@login_required
def outlook(request: PageRequest, session_id: UUID) -> HttpResponse:
    """Show what would start a waiting session now; htmx asks for the part alone, which is empty for all others."""
    found = _find(request, session_id)
    context = {"outlook": outlook_of(found, request.user, now=timezone.now()), **_ending(request, found)}
    part = request.htmx and not request.htmx.boosted
    return render(request, "web/_session_outlook.html" if part else "web/outlook.html", context)


@require_http_methods(["GET", "HEAD", "POST"])
@never_cache
@login_required
def terminate(request: PageRequest, session_id: UUID) -> HttpResponse:
    """Ask for a confirmation; on POST end the session."""
    found = _find(request, session_id)
    if request.method != "POST":
        return render(request, "web/terminate.html", _ending(request, found) | {"before": _waiting_for(request, found)})
    try:
        ended = terminate_session(found, request.user, force=request.POST.get("force") == "on")
    except UserError as error:
        messages.error(request, error.message)
    else:
        text = "{} was cancelled before it ran." if ended.cancelled else "{} is being ended."
        messages.success(request, text.format(found.name))
    return redirect("web:session", session_id=session_id)


def _find(request: PageRequest, session_id: UUID) -> ComputeSession:
    visible = ComputeSession.objects.visible_to(request.user)
    rows = visible.select_related("image", "resource_group", "owner", "launched_by", "project")
    found: ComputeSession = get_object_or_404(rows, pk=session_id)
    return found


def _context(request: PageRequest, session_id: UUID) -> dict[str, Any]:
    found = _find(request, session_id)
    kernels = list(found.kernels.select_related("agent"))
    after = list(found.depends_on.visible_to(request.user).order_by("created_at")[:_MOST_NAMED])
    progress = [kernel.progress for kernel in kernels if kernel.progress is not None]
    about = {
        "try_text": try_text(found),
        "change": what_to_change(found),
        "help": what_helps(found),
        "wait": wait_of(found),
        "silent": silent_agents(found, kernels),
        "drains": drained_agents(kernels),
        "after": after,
        "awaited": [each for each in after if not each.is_terminal],
        "before": _waiting_for(request, found),
    }
    return (
        _ending(request, found)
        | about
        | {
            "kernels": kernels,
            "percent": round(100 * min(progress)) if progress else None,
            "total_slots": found.kernel_slots * found.cluster_size,
        }
    )


def _waiting_for(request: PageRequest, found: ComputeSession) -> list[ComputeSession]:
    """Return those that wait for the session to end well: they end with it when it does not."""
    return list(found.dependents.visible_to(request.user).pending().order_by("created_at")[:_MOST_NAMED])


def _ending(request: PageRequest, found: ComputeSession) -> dict[str, Any]:
    own = found.owner_id == request.user.pk
    return {"section": "sessions", "session": found, "is_own": own, "may_force": own or request.user.is_superadmin}
