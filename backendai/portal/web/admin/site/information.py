"""Statistics, versions, health and configuration of the platform, and checks of its data."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from django.http import HttpRequest, HttpResponse
from django.utils import timezone
from django.utils.translation import gettext_lazy as _l
from django.views.generic import TemplateView

from backendai.domain.activity.jobs import newest_jobs
from backendai.domain.activity.models import AuditEntry, BackgroundJob
from backendai.domain.activity.services import audit
from backendai.domain.catalog.models import Registry
from backendai.domain.catalog.registries import SCAN_JOB
from backendai.domain.compute.auditing import CHECKS, World
from backendai.portal.web.admin.access import PanelPage, administrator
from backendai.portal.web.dashboard.configuration import effective_configuration
from backendai.portal.web.dashboard.health import agents_heard, health, versions
from backendai.portal.web.dashboard.statistics import ask_statistics, shown_statistics, statistics_file
from backendai.portal.web.frame.table_sizes import amounts_kept

# What can be asked of the database while somebody waits. The rest is for ``manage.py audit``: the whole history, and
# what the container engines run.
BOOKS = ("I-01", "I-03", "I-05", "I-07", "I-08", "L-01")
_VERIFIED = "site.verify-books"
_PATIENCE_SECONDS, _MOST_SHOWN = 20.0, 20


class StatisticsPage(PanelPage, TemplateView):
    """Statistics of allocations; for domain admins those of their domain."""

    section = "statistics"
    title = _l("Statistics")
    icon = "chart-bar"
    guide = "statistics-and-the-audit-log"
    template_name = "web/panel/statistics.html"
    rule = staticmethod(administrator)

    def get(self, request: HttpRequest, *args: Any, **kwargs: Any) -> Any:
        """Show the page, or send the table as a file."""
        form, found = ask_statistics(self.viewer, request.GET, by="user")
        if found and request.GET.get("export") == "csv":
            return statistics_file(found)
        shown = shown_statistics(form, found, request.GET)
        return self.render_to_response(self.get_context_data(**shown), status=200 if found else 422)


class InformationPage(PanelPage, TemplateView):
    """Versions, health and configuration of the platform."""

    section = "information"
    title = _l("Information")
    icon = "info-circle"
    guide = "the-site"
    template_name = "web/panel/information.html"

    def page_context(self) -> dict[str, Any]:
        """Return the current values."""
        now = timezone.now()
        return {
            "parts": health(now),
            "versions": versions(),
            "agents": agents_heard(now),
            "kept": amounts_kept(),
            "configuration": effective_configuration(),
        }


@dataclass(frozen=True, slots=True)
class Verdict:
    """The result of one data check: its rule, the violations, and whether it finished in time."""

    name: str
    rule: str
    violations: list[str]
    number: int
    was_run: bool = True


class MaintenancePage(PanelPage, TemplateView):
    """Data checks, registry scans, and running jobs."""

    section = "maintenance"
    title = _l("Maintenance")
    icon = "tool"
    guide = "the-site"
    template_name = "web/panel/maintenance.html"

    def post(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
        """Run the data checks, and show their results."""
        verdicts = list(_verdicts())
        wrong = sum(verdict.number for verdict in verdicts)
        audit(self.viewer.pk, _VERIFIED, "site", ["site"], violations=wrong)
        return self.render_to_response(self.get_context_data(verdicts=verdicts, wrong=wrong))

    def page_context(self) -> dict[str, Any]:
        """Return the newest jobs; no checks have run yet."""
        return {
            "jobs": BackgroundJob.objects.order_by("-created_at")[:10],
            "registries": _registries(),
            "verified": AuditEntry.objects.filter(action=_VERIFIED).select_related("actor").first(),
            "verdicts": None,
            "wrong": 0,
        }


def _registries() -> list[tuple[Registry, BackgroundJob | None]]:
    """Return the enabled registries, each with its newest scan or None."""
    registries = list(Registry.objects.filter(is_enabled=True))
    scans = newest_jobs(SCAN_JOB, [registry.name for registry in registries])
    return [(registry, scans.get(registry.name)) for registry in registries]


def _verdicts() -> Iterator[Verdict]:
    world, until = World(timezone.now()), time.monotonic() + _PATIENCE_SECONDS
    for name in BOOKS:
        rule = (CHECKS[name].__doc__ or "").partition(": ")[2].partition("\n")[0]
        if time.monotonic() > until:
            yield Verdict(name, rule, [], 0, was_run=False)
            continue
        found = CHECKS[name](world)
        yield Verdict(name, rule, found[:_MOST_SHOWN], len(found))
