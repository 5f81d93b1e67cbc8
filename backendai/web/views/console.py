"""The console of a session: code is run in it, and its runs are shown."""

from __future__ import annotations

from uuid import UUID

from django.contrib.auth.decorators import login_required
from django.http import HttpResponse
from django.shortcuts import render
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_safe

from backendai.web.detail.actions import why_no_console
from backendai.web.requests import PageRequest
from backendai.web.views.session import find_session, with_inline_styles


@require_safe
@never_cache
@login_required
@with_inline_styles  # tables that programs print bring their styles; they are in frames
def console(request: PageRequest, session_id: UUID) -> HttpResponse:
    """Show the console, or why there is none."""
    session = find_session(request, session_id)
    return render(request, "web/console.html", {"session": session, "obstacle": why_no_console(session)})
