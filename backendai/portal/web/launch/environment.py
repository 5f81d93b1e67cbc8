"""Reloads the environments on the launch form after project or group has changed."""

from __future__ import annotations

from django.contrib.auth.decorators import login_required
from django.http import HttpResponse
from django.shortcuts import render
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_POST

from backendai.portal.web.dashboard.images import build_by_image, builds_for
from backendai.portal.web.frame.requests import PageRequest
from backendai.portal.web.launch.form import LaunchForm
from backendai.portal.web.launch.owner import asked_owner


@require_POST
@never_cache
@login_required
def launch_environments(request: PageRequest) -> HttpResponse:
    """Return the environments for the project and group in the form."""
    owner = asked_owner(request).owner
    form = LaunchForm(request.POST, user=owner, actor=request.user)
    context = {"form": form, "builds": build_by_image(builds_for(owner)), "is_renewed": True}
    return render(request, "web/launch/_environment_choice.html", context)
