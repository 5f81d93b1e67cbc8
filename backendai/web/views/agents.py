"""Where the page of the machines was."""

from __future__ import annotations

from django.contrib.auth.decorators import login_required
from django.http import Http404, HttpResponse
from django.shortcuts import redirect
from django.views.decorators.http import require_safe

from backendai.web.requests import PageRequest


@require_safe
@login_required
def agents(request: PageRequest) -> HttpResponse:
    """Lead to where it is now; for anybody but superadmins there is nothing."""
    if not request.user.is_superadmin:
        raise Http404
    return redirect("manage:agents")
