"""The former address of the list of agents."""

from __future__ import annotations

from django.contrib.auth.decorators import login_required
from django.http import Http404, HttpResponse
from django.shortcuts import redirect
from django.views.decorators.http import require_safe

from backendai.portal.web.frame.requests import PageRequest


@require_safe
@login_required
def agents(request: PageRequest) -> HttpResponse:
    """Redirect to the list of agents; 404 for others than superadmins."""
    if not request.user.is_superadmin:
        raise Http404
    return redirect("manage:agents")
