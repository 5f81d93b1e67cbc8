"""The dashboard: the user's sessions, limits and usage, and the resources of the groups."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

from django.db.models import Count, Q
from django.http import Http404, HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.utils import timezone
from django.utils.translation import gettext_noop as _noop

from backendai.base.core.errors import UserError
from backendai.base.core.session_kinds import KINDS
from backendai.base.texts.messages import in_words
from backendai.domain.accounts.models import Project, User
from backendai.domain.cluster.models import Agent
from backendai.domain.cluster.site import announcements
from backendai.domain.compute.models import ComputeSession
from backendai.domain.compute.services.requests.check import project_of
from backendai.domain.compute.status import Status
from backendai.domain.planning.amounts.allowances import own_limits
from backendai.domain.planning.cluster_now import Problem, cluster_now
from backendai.domain.usage.statistics import statistics, unit_of
from backendai.portal.web.dashboard.gauges import gauges_of, own_use_in, tightest
from backendai.portal.web.dashboard.resources import RoomBars, name_of_slot, rooms_for
from backendai.portal.web.frame.charts import chart_of, usual_slot
from backendai.portal.web.frame.kind_words import words_of
from backendai.portal.web.frame.requests import PageRequest, signed_in
from backendai.portal.web.launch.resources import may_see_room

_RECENT = 5
_CHART_DAYS = 30
_PROBLEMS = {
    "lost": _noop("lost"),
    "refused": _noop("refused (credential revoked)"),
    "low-disk": _noop("disk low"),
    "unknown-kernels": _noop("unknown kernels"),
}
_FILTERS = {"lost": "?status=LOST", "low-disk": "?low_disk=true"}


@signed_in("GET")
def dashboard(request: PageRequest) -> HttpResponse:
    """Show the dashboard; for htmx only its content."""
    rooms = rooms_for(request.user)
    offered = {bar.slot for room in rooms for bar in room.bars}
    limits = own_limits(request.user, _project(request), also=offered)
    recent = ComputeSession.objects.filter(owner=request.user).select_related("image", "resource_group")
    newest = list(recent.order_by("-created_at")[:_RECENT])
    room = _chosen(rooms, request.GET.get("group") or (newest[0].resource_group.name if newest else ""))
    shows_room = may_see_room(request.user)
    context = {
        "section": "dashboard",
        "counts": _counts(request.user),
        "recent": newest,
        "limits": limits,
        "gauges": tightest(limits),
        "holders": [(holder, gauges_of(holder)) for holder in limits.holders],
        "projects": Project.objects.usable_by(request.user).order_by("name"),
        "rooms": rooms,
        "room": room,
        "shows_room": shows_room,
        "shows_free": request.GET.get("show") == "free",
        "here": own_use_in(room, request.user, limits, shows_room=shows_room) if room else [],
        "cluster": _cluster(request.user) if request.user.is_superadmin else None,
    }
    part = request.htmx and not request.htmx.boosted
    return render(request, "web/_dashboard.html" if part else "web/dashboard.html", context)


def _project(request: PageRequest) -> Project | None:
    try:
        return project_of(request.user, request.GET.get("project", "")[:64])
    except UserError:
        return project_of(request.user, "")


def _counts(user: User) -> dict[str, Any]:
    """Return the numbers of the user's live sessions by type and status, in the order of a session's life."""
    live = ComputeSession.objects.live().filter(owner=user).order_by()
    counted = live.values_list("session_type", "status").annotate(Count("pk"))
    numbers = {(kind, status): number for kind, status, number in counted}
    statuses = [status for status in Status if any(status == of for _, of in numbers)]
    kinds = [kind for kind in KINDS if any(kind == of for of, _ in numbers)]
    rows = [(words_of(kind).word, [(status, numbers.get((kind, status), 0)) for status in statuses]) for kind in kinds]
    return {"statuses": statuses, "rows": rows, "total": sum(numbers.values())}


def _chosen(rooms: Sequence[RoomBars], name: str) -> RoomBars | None:
    return next((room for room in rooms if room.group.name == name), rooms[0] if rooms else None)


def _cluster(user: User) -> dict[str, Any]:
    """Return the state of the whole platform: sessions, queue, agents by status, and allocations of the last days."""
    live = ComputeSession.objects.live()
    sessions = live.aggregate(active=Count("pk"), waiting=Count("pk", filter=Q(status=Status.PENDING)))
    agents = dict(Agent.objects.registered().order_by().values_list("status").annotate(Count("pk")))
    by_status = [(status, agents[status]) for status in Agent.Status if status in agents]
    now = cluster_now()
    problems = [(_PROBLEMS.get(one.kind, one.message), _address_of(one), one.agents) for one in now.problems]
    return {**sessions, "agents": by_status, "now": now, "problems": problems, "chart": _chart(user)}


def _address_of(problem: Problem) -> str:
    """Return the page where an administrator sees or repairs the problem."""
    if problem.kind == "unknown-kernels":
        return reverse("manage:unknown-kernels")
    if len(problem.agents) == 1:
        return reverse("manage:agent", args=[problem.agents[0].pk])
    return reverse("manage:agents") + _FILTERS.get(problem.kind, "")


def _chart(user: User) -> dict[str, Any]:
    today = timezone.now().date()
    found = statistics(user, first=today - timedelta(days=_CHART_DAYS - 1), last=today, by="day")
    slot = usual_slot(found.slots)
    return {
        "drawn": chart_of(found.days, slot),
        "title": f"{name_of_slot(slot)} {in_words(unit_of(slot))}",
        "days": _CHART_DAYS,
    }


@signed_in("GET")
def agents(request: PageRequest) -> HttpResponse:
    """Redirect to the list of agents; 404 for others than superadmins."""
    if not request.user.is_superadmin:
        raise Http404
    return redirect("manage:agents")


@signed_in("GET")
def current_announcements(request: PageRequest) -> HttpResponse:
    """Return the announcement bars for the top of every page; without htmx a page."""
    part = request.htmx and not request.htmx.boosted
    template = "web/_announcements.html" if part else "web/announcements.html"
    return render(request, template, {"section": "", "announcements": announcements(timezone.now())})
