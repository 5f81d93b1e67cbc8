"""The dashboard: one's sessions, limits and use, and what the resource groups have."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from django.contrib.auth.decorators import login_required
from django.db.models import Count, Q
from django.http import HttpResponse
from django.shortcuts import render
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_safe

from backendai.accounts.models import Project, User
from backendai.cluster.models import Agent
from backendai.compute.models import ComputeSession
from backendai.compute.services.check import project_of
from backendai.compute.status import LIVE, SessionType, Status
from backendai.core.errors import UserError
from backendai.core.slots import format_amount, limit_text
from backendai.planning.allowances import Allowance, HolderLimits, OwnLimits, own_limits
from backendai.web.requests import PageRequest
from backendai.web.resources import RoomBars, name_of_slot, rooms_for

_RECENT = 5


@dataclass(frozen=True, slots=True)
class Gauge:
    """One thing with a limit, as a bar: whose limit it is (empty: nobody's), and how full it is."""

    slot: str  # empty: sessions
    allowance: Allowance
    holder: str = ""

    @property
    def name(self) -> str:
        """What it is, for people."""
        return name_of_slot(self.slot) if self.slot else "Sessions"

    @property
    def percent(self) -> int | None:
        """How much of the limit is held, 0 to 100; None without a limit."""
        one = self.allowance
        if one.limit is None:
            return None
        return min(100, round(100 * one.used / one.limit)) if one.limit else 100

    @property
    def used(self) -> str:
        """What is held."""
        return self._text(self.allowance.used)

    @property
    def limit(self) -> str:
        """What may be held."""
        return limit_text(self.allowance.limit, self.slot)

    @property
    def left(self) -> str:
        """What may still be taken."""
        return limit_text(self.allowance.remaining, self.slot)

    @property
    def pending(self) -> str:
        """What waits; empty when nothing does."""
        return self._text(self.allowance.pending) if self.allowance.pending else ""

    def _text(self, amount: int) -> str:
        return format_amount(self.slot, amount) if self.slot else str(amount)


@require_safe
@never_cache
@login_required
def dashboard(request: PageRequest) -> HttpResponse:
    """Show the dashboard; htmx asks for its content alone."""
    rooms = rooms_for(request.user)
    offered = {bar.slot for room in rooms for bar in room.bars}
    limits = own_limits(request.user, _project(request), also=offered)
    recent = ComputeSession.objects.filter(owner=request.user).select_related("image", "resource_group")
    context = {
        "section": "dashboard",
        "counts": _counts(request.user),
        "recent": recent.order_by("-created_at")[:_RECENT],
        "limits": limits,
        "gauges": _tightest(limits),
        "holders": [(holder, _gauges(holder)) for holder in limits.holders],
        "projects": Project.objects.usable_by(request.user).order_by("name"),
        "rooms": rooms,
        "room": _chosen(rooms, request.GET.get("group", "")),
        "cluster": _cluster() if request.user.is_superadmin else None,
    }
    part = request.htmx and not request.htmx.boosted
    return render(request, "web/_dashboard.html" if part else "web/dashboard.html", context)


def _project(request: PageRequest) -> Project | None:
    try:
        return project_of(request.user, request.GET.get("project", "")[:64])
    except UserError:
        return project_of(request.user, "")


def _counts(user: User) -> dict[str, Any]:
    """Return one's live sessions by type and status, in the order of a session's life."""
    live = ComputeSession.objects.filter(owner=user, status__in=LIVE).order_by()
    counted = live.values_list("session_type", "status").annotate(Count("pk"))
    numbers = {(kind, status): number for kind, status, number in counted}
    statuses = [status for status in Status if any(status == of for _, of in numbers)]
    kinds = [kind for kind in SessionType if any(kind == of for of, _ in numbers)]
    rows = [(kind.label, [numbers.get((kind, status), 0) for status in statuses]) for kind in kinds]
    return {"statuses": statuses, "rows": rows, "total": sum(numbers.values())}


def _tightest(limits: OwnLimits) -> list[Gauge]:
    """Return one bar for each thing: that of the holder whose limit leaves the least, else of the user's own use."""
    user = next(holder for holder in limits.holders if holder.scope == "user")
    of_sessions = limits.strictest_sessions
    gauges = [Gauge("", (of_sessions or user).sessions, of_sessions.label if of_sessions else "")]
    for slot, holder in limits.strictest.items():
        gauges.append(Gauge(slot, (holder or user).slots[slot], holder.label if holder else ""))
    return gauges


def _gauges(holder: HolderLimits) -> list[Gauge]:
    return [Gauge("", holder.sessions), *(Gauge(slot, one) for slot, one in holder.slots.items())]


def _chosen(rooms: Sequence[RoomBars], name: str) -> RoomBars | None:
    return next((room for room in rooms if room.group.name == name), rooms[0] if rooms else None)


def _cluster() -> dict[str, Any]:
    """Return how the whole platform stands: sessions, the queue, agents by status."""
    live = ComputeSession.objects.filter(status__in=LIVE)
    sessions = live.aggregate(active=Count("pk"), waiting=Count("pk", filter=Q(status=Status.PENDING)))
    agents = dict(Agent.objects.registered().order_by().values_list("status").annotate(Count("pk")))
    return {**sessions, "agents": [(status, agents[status]) for status in Agent.Status if status in agents]}
