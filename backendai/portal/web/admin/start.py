"""The start of the panel: what needs attention, counts and the last changes."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any, NamedTuple

from django.db.models import Count, Q
from django.http import HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.utils import timezone
from django.utils.translation import gettext as _

from backendai.domain.accounts.models import Invitation, User
from backendai.domain.activity.models import AuditEntry, BackgroundJob
from backendai.domain.cluster.models import Agent
from backendai.domain.compute.models import ComputeSession
from backendai.domain.compute.services.notices.unknown_notifications import undecided_by_agent
from backendai.domain.compute.status import Status
from backendai.portal.web.admin.access import panel_page
from backendai.portal.web.admin.menu import has_menu, menu_for
from backendai.portal.web.frame.requests import PageRequest

_LATELY, _CHANGES = timedelta(hours=24), 8


class Figure(NamedTuple):
    """A number with its name and the page that shows what it counts."""

    name: str
    number: int
    address: str


@panel_page(has_menu)
def start(request: PageRequest) -> HttpResponse:
    """Show the start page to superadmins; redirect other administrators to the first page of their menu."""
    if not request.user.is_superadmin:
        return redirect(f"manage:{menu_for(request.user)[0][1][0].section}")
    agents = dict(Agent.objects.registered().order_by().values_list("status").annotate(Count("pk")))
    live = ComputeSession.objects.live().aggregate(
        all=Count("pk"), waiting=Count("pk", filter=Q(status=Status.PENDING))
    )
    context: dict[str, Any] = {"section": "manage", "panel_section": "start", "title": _("Overview")}
    problems = _problems(request.user, agents, timezone.now())
    context |= {"problems": [one for one in problems if one.number], "figures": _figures(agents, live)}
    context["changes"] = AuditEntry.objects.select_related("actor").order_by("-at", "-pk")[:_CHANGES]
    return render(request, "web/panel/start.html", context)


def _problems(user: User, agents: dict[str, int], now: datetime) -> list[Figure]:
    failed = BackgroundJob.objects.filter(status=BackgroundJob.Status.FAILED, finished_at__gt=now - _LATELY)
    unknown = sum(one.number for one in undecided_by_agent(user))
    noted, full = Count("pk", filter=~Q(notes=[])), Count("pk", filter=Q(low_disk=True))
    troubled = Agent.objects.registered().aggregate(noted=noted, full=full)
    return [
        Figure(_("Agents that do not answer"), agents.get(Agent.Status.LOST, 0), reverse("manage:agents")),
        Figure(_("Agents being drained"), agents.get(Agent.Status.DRAINING, 0), reverse("manage:agents")),
        Figure(_("Agents with notes, such as unhealthy devices"), troubled["noted"], reverse("manage:agents")),
        Figure(_("Agents with little free disk space"), troubled["full"], reverse("manage:agents") + "?low_disk=true"),
        Figure(_("Unknown kernels that wait for a decision"), unknown, reverse("manage:unknown-kernels")),
        Figure(_("Background jobs that failed in the last 24 hours"), failed.count(), reverse("manage:jobs")),
    ]


def _figures(agents: dict[str, int], live: dict[str, int]) -> list[Figure]:
    people = User.objects.filter(is_active=True, purged_at=None).count()
    invited = Invitation.objects.pending().count()
    return [
        Figure(_("Agents"), sum(agents.values()), reverse("manage:agents")),
        Figure(_("Active sessions"), live["all"], reverse("web:sessions")),
        Figure(_("Pending sessions"), live["waiting"], reverse("manage:queue")),
        Figure(_("Users"), people, reverse("manage:users")),
        Figure(_("Open invitations"), invited, reverse("manage:invitations")),
    ]
