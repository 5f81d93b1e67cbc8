"""The console of a session: code is run in it, and its runs are shown."""

from __future__ import annotations

from typing import cast
from uuid import UUID

from csp.constants import UNSAFE_INLINE
from csp.decorators import csp_update
from django.contrib.auth.decorators import login_required
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_safe

from backendai.cluster.app_domains import origin_of, output_host
from backendai.cluster.capabilities import why_not
from backendai.compute.services.apps import main_kernel
from backendai.web.detail.actions import why_no_console
from backendai.web.requests import PageRequest
from backendai.web.views.session import find_session
from backendai.wire.capabilities import Capability


@require_safe
@never_cache
@login_required
def console(request: PageRequest, session_id: UUID) -> HttpResponse:
    """Show the console, or why there is none."""
    session = find_session(request, session_id)
    obstacle = why_no_console(session)
    kernel = None if obstacle else main_kernel(session)
    if kernel is not None and kernel.agent is not None:
        obstacle = why_not(kernel.agent, Capability.EXECUTION)
    origin = origin_of(output_host())
    shown = {"session": session, "obstacle": obstacle, "output_origin": origin}

    def page(request: HttpRequest) -> HttpResponse:
        return render(request, "web/console.html", shown)

    # Tables that programs print bring their styles. Scripts of printed pages run in a frame of that origin, which can
    # lead nowhere else.
    policy = {"frame-src": [origin], "style-src": [UNSAFE_INLINE]}
    return cast(HttpResponse, csp_update(policy)(page)(request))
