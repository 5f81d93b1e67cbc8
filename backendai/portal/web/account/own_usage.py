"""The resources that the user's own sessions held, and those of the projects that the user administers."""

from __future__ import annotations

from django.contrib.auth.decorators import login_required
from django.http import HttpResponseBase
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_safe

from backendai.portal.web.account.menu import account_page
from backendai.portal.web.dashboard.statistics import ask_statistics, shown_statistics, statistics_file
from backendai.portal.web.frame.requests import PageRequest


@require_safe
@never_cache
@login_required
def usage(request: PageRequest) -> HttpResponseBase:
    """Show the chart and the table, or send the table as a file."""
    form, found = ask_statistics(request.user, request.GET, by="project", is_personal=True)
    if found and request.GET.get("export") == "csv":
        return statistics_file(found)
    managed = request.user.memberships.filter(role="admin").order_by("project__name")
    shown = shown_statistics(form, found, request.GET)
    shown["projects"] = list(managed.values_list("project__name", flat=True))
    return account_page(request, "web:own_usage", shown, status=200 if found else 422)
