"""The console of a session, which runs code and shows its runs."""

from __future__ import annotations

from typing import cast
from uuid import UUID

from csp.constants import UNSAFE_INLINE
from csp.decorators import csp_update
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.urls import reverse

from backendai.base.wire.capabilities import Capability
from backendai.domain.cluster.app_domains import origin_of, output_host
from backendai.domain.cluster.capabilities import why_not
from backendai.domain.compute.models import ComputeSession, Kernel
from backendai.domain.compute.services.apps.of_session import apps_of, main_kernel
from backendai.domain.compute.status import ShareRight
from backendai.portal.web.frame.requests import PageRequest, signed_in
from backendai.portal.web.session.actions import why_no_console
from backendai.portal.web.session.pages import find_session


@signed_in("GET")
def console(request: PageRequest, session_id: UUID) -> HttpResponse:
    """Show the console, or why the session has none."""
    session = find_session(request, session_id, ShareRight.USE)
    obstacle = why_no_console(session)
    kernel = None if obstacle else main_kernel(session)
    if kernel is not None and kernel.agent is not None:
        obstacle = why_not(kernel.agent, Capability.EXECUTION)
    origin = origin_of(output_host())
    shown = {"section": "sessions", "session": session, "obstacle": obstacle, "output_origin": origin}
    shown["lab_url"] = _lab_url(session, kernel)

    def page(request: HttpRequest) -> HttpResponse:
        return render(request, "web/console.html", shown)

    # Tables that programs print bring their styles. Scripts of printed pages run in a frame of that origin, which can
    # lead nowhere else.
    policy = {"frame-src": [origin], "style-src": [UNSAFE_INLINE]}
    return cast(HttpResponse, csp_update(policy)(page)(request))


def _lab_url(session: ComputeSession, kernel: Kernel | None) -> str:
    """Return the address that opens the session's JupyterLab; empty if there is none, or it cannot be opened."""
    if not any(app.name == "jupyterlab" and not app.code for app in apps_of(session, kernel)):
        return ""
    return reverse("web:app", args=[session.pk, "jupyterlab"])
