"""SSH access to a session, and the SSH key for this session only."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from django.http import Http404, HttpResponse
from django.shortcuts import redirect

from backendai.base.core.errors import NotFound, UserError
from backendai.gates.gateways.ssh_access import config_for, home_of, key_of, lines_for, other_kernels, site_for
from backendai.portal.web.frame.requests import PageRequest, signed_in
from backendai.portal.web.session.boxes import box
from backendai.portal.web.session.pages import find_session


@signed_in("GET")
def ssh(request: PageRequest, session_id: UUID) -> HttpResponse:
    """Show the commands, the host key, and the entries for a client's configuration files."""
    session = find_session(request, session_id)
    site = site_for(request.get_host())
    context: dict[str, Any] = {"site": site, "is_own": session.owner_id == request.user.pk}
    if site is not None:
        lines = lines_for(site, session.name, home_of(session))
        context |= {"lines": lines, "config": config_for(site, session)}
        context |= {"other_kernels": other_kernels(site, session)}
        context |= {"has_keys": request.user.ssh_keys.exists()}
    return box(request, session, "web/_session_ssh.html", context)


@signed_in("POST")
def ssh_key(request: PageRequest, session_id: UUID) -> HttpResponse:
    """Send the private key of the user's session as a file; with ``renew`` a new one."""
    session = find_session(request, session_id)
    try:
        private, _ = key_of(request.user, session, renew=request.POST.get("renew") == "yes")
    except NotFound as error:
        raise Http404 from error
    except UserError:
        return redirect("web:session", session_id=session.pk)
    answer = HttpResponse(private, content_type="application/octet-stream")
    answer["Content-Disposition"] = f'attachment; filename="id_{session.name}"'
    answer["Cache-Control"] = "no-store"
    return answer
