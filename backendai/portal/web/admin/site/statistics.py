"""Statistics of the whole platform; for domain admins those of their domain."""

from __future__ import annotations

from typing import Any

from django.http import HttpRequest
from django.utils.translation import gettext_lazy as _l
from django.views.generic import TemplateView

from backendai.domain.accounts.models import User
from backendai.portal.web.admin.access import PanelPage
from backendai.portal.web.dashboard.statistics import ask_statistics, shown_statistics, statistics_file


def administrator(user: User) -> bool:
    """Return whether the user administers the platform or a domain. Domain admins see the part of their domain."""
    return user.role != User.Role.USER


class StatisticsPage(PanelPage, TemplateView):
    """Statistics of allocations; for domain admins those of their domain."""

    section = "statistics"
    title = _l("Statistics")
    template_name = "web/panel/statistics.html"
    rule = staticmethod(administrator)

    def get(self, request: HttpRequest, *args: Any, **kwargs: Any) -> Any:
        """Show the page, or send the table as a file."""
        form, found = ask_statistics(self.viewer, request.GET, by="user")
        if found and request.GET.get("export") == "csv":
            return statistics_file(found)
        shown = shown_statistics(form, found, request.GET)
        return self.render_to_response(self.get_context_data(**shown), status=200 if found else 422)
