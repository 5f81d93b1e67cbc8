"""The announcements of administrators."""

from __future__ import annotations

from django.contrib.auth.decorators import login_required
from django.http import HttpResponse
from django.shortcuts import render
from django.utils import timezone
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_safe

from backendai.domain.cluster.site import announcements
from backendai.portal.web.frame.requests import PageRequest


@require_safe
@never_cache
@login_required
def current(request: PageRequest) -> HttpResponse:
    """Return the announcement bars for the top of every page; without htmx a page."""
    part = request.htmx and not request.htmx.boosted
    template = "web/_announcements.html" if part else "web/announcements.html"
    return render(request, template, {"section": "", "announcements": announcements(timezone.now())})
