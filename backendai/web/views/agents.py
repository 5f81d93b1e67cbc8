"""The machines, for superadmins."""

from __future__ import annotations

from dataclasses import dataclass

from django.contrib.auth.decorators import login_required
from django.db.models import Count, Q
from django.http import Http404, HttpResponse
from django.shortcuts import render
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_safe

from backendai.cluster.models import Agent
from backendai.compute.services.ledger import occupied_by_agent
from backendai.compute.status import PLACED
from backendai.core.slots import Slots
from backendai.web.requests import PageRequest
from backendai.web.resources import Bar, bars_of


@dataclass(frozen=True, slots=True)
class AgentRow:
    """One agent with what is taken on it."""

    agent: Agent
    bars: list[Bar]


@require_safe
@never_cache
@login_required
def agents(request: PageRequest) -> HttpResponse:
    """Show every agent with its state, load and notes; for anybody else the page does not exist."""
    if not request.user.is_superadmin:
        raise Http404
    kernels = Count("kernels", filter=Q(kernels__status__in=PLACED))
    found = (
        Agent.objects.visible_to(request.user)
        .select_related("resource_group")
        .annotate(kernel_count=kernels)
        .order_by("name")
    )
    taken = occupied_by_agent()
    rows = [AgentRow(agent, bars_of(taken.get(agent.pk, Slots()), agent.slots)) for agent in found]
    template = "web/_agent_list.html" if request.htmx else "web/agents.html"
    return render(request, template, {"section": "agents", "rows": rows})
