"""The list of agents, and the page of an agent with its kernels."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from uuid import UUID

import django_tables2 as tables
from django.db.models import QuerySet
from django.shortcuts import get_object_or_404
from django.urls import path
from django.utils.html import format_html
from django.utils.translation import gettext_lazy as _l
from django.views.generic import TemplateView

from backendai.base.core.slots import Slots, format_size
from backendai.base.texts.translation import gettext as _
from backendai.base.texts.translation import ngettext
from backendai.base.wire.capabilities import Capability
from backendai.domain.accounts.querysets import number_of
from backendai.domain.cluster.capabilities import capabilities_of
from backendai.domain.cluster.models import Agent
from backendai.domain.compute.models import Kernel
from backendai.domain.compute.services.status.ledger import occupied_by_agent
from backendai.domain.compute.status import PLACED
from backendai.domain.planning.agents import images_for
from backendai.portal.web.admin.access import PanelPage
from backendai.portal.web.admin.agents import actions
from backendai.portal.web.admin.agents.devices import device_rows
from backendai.portal.web.admin.listing import ListPage, NumberColumn, PanelTable, TimeColumn
from backendai.portal.web.dashboard.resources import Bar, bars_of
from backendai.portal.web.templatetags.panel_table import load_bars, use_bars
from backendai.portal.web.templatetags.portal import status

_MOST_KERNELS = 100
_KERNELS = number_of(Kernel.objects.placed(), "agent")


class AgentTable(PanelTable):
    """A table with one row for each agent."""

    name = tables.LinkColumn("manage:agent", args=[tables.A("pk")], verbose_name=_l("Agent"))
    resource_group = tables.Column(_l("Resource group"))
    status = tables.Column(_l("Status"))
    schedulable = tables.Column(_l("Accepts sessions"))
    use = tables.Column(_l("Allocated"), accessor="capacity", orderable=False, attrs={"td": {"class": "cell-bars"}})
    load = tables.Column(_l("Current load"), accessor="live", orderable=False, attrs={"td": {"class": "cell-load"}})
    engine = tables.Column(_l("Engine"), default="–")
    kernel_count = NumberColumn(_l("Kernels"))
    last_seen_at = TimeColumn(_l("Last seen"), default=_l("never"))

    def __init__(self, *args: Any, taken: Mapping[UUID, Slots] | None = None, **kwargs: Any) -> None:
        self.taken = taken or {}
        super().__init__(*args, **kwargs)

    class Meta(PanelTable.Meta):
        model = Agent
        order_by = "name"

    def render_status(self, value: str, record: Agent) -> str:
        """Return the coloured status, and below it the number of notes or a problem."""
        look = status(record.status)
        notes = len(record.notes) + bool(record.unknown_kernels)
        text = ngettext("%(number)s note", "%(number)s notes", notes) % {"number": notes} if notes else ""
        text = _("cannot start sessions") if record.fault else text
        text = _("refused (credential revoked)") if record.revoked_at else text
        return format_html('{}<div class="sub">{}</div>', look, text) if text else look

    def value_status(self, record: Agent) -> str:
        return str(record.status)

    def render_schedulable(self, record: Agent) -> str:
        """Return whether new sessions start on the agent now, else the reason."""
        return takes_sessions(record)

    def value_schedulable(self, record: Agent) -> str:
        return takes_sessions(record)

    def render_use(self, record: Agent) -> str:
        """Return bars of the occupied amounts."""
        return use_bars(self._bars(record))

    def value_use(self, record: Agent) -> str:
        """Return the occupied amounts as text for files."""
        return "; ".join(
            _("%(name)s %(used_text)s of %(total_text)s")
            % {"name": bar.name, "used_text": bar.used_text, "total_text": bar.total_text}
            for bar in self._bars(record)
        )

    def render_load(self, record: Agent) -> str:
        """Return the load of the agent's machine as bars."""
        return load_bars(load_of(record)) or "–"

    def value_load(self, record: Agent) -> str:
        """Return the load as text for files."""
        return "; ".join(f"{name} {percent} %" for name, percent in load_of(record))

    def render_engine(self, value: str, record: Agent) -> str:
        """Return the container engine with the version of the Linux kernel."""
        short = value.partition("+")[0]  # without what its distribution adds
        return format_html('{}<div class="sub">Linux {}</div>', short, record.os_kernel) if record.os_kernel else short

    def value_engine(self, value: str) -> str:
        """Return the container engine for files."""
        return value

    def _bars(self, agent: Agent) -> list[Bar]:
        return bars_of(self.taken.get(agent.pk, Slots()), agent.slots)


class AgentPage(PanelPage, TemplateView):
    """The page of one agent: its state, its kernels, and the actions on it."""

    section = "agents"
    template_name = "web/panel/agent.html"

    def page_context(self) -> dict[str, Any]:
        """Return the agent and its kernels."""
        rows = Agent.objects.select_related("resource_group").annotate(kernel_count=_KERNELS)
        agent: Any = get_object_or_404(rows, pk=self.kwargs["pk"])
        kernels = Kernel.objects.filter(agent=agent, status__in=PLACED).select_related("session__owner")
        shown_kernels = list(kernels.order_by("session__name", "rank")[:_MOST_KERNELS])
        taken = occupied_by_agent([agent.pk]).get(agent.pk, Slots())
        images, all_images = images_for(agent) if agent.status != Agent.Status.TERMINATED else ([], 0)
        return {
            "images": images,
            "all_images": all_images,
            "is_native": Capability.NATIVE in capabilities_of(agent),
            "title": agent.name,
            "agent": agent,
            "bars": bars_of(taken, agent.slots),
            "takes_sessions": takes_sessions(agent),
            "load": load_bars(load_of(agent)),
            "disk": disk_text(agent),
            "devices": device_rows(agent, shown_kernels),
            "kernels": shown_kernels,
            "most_kernels": _MOST_KERNELS,
            "drained": max(0, agent.drain_kernels - agent.kernel_count),
        }

    def get_template_names(self) -> list[str]:
        """Return the template of the live part for htmx, else that of the page."""
        htmx: Any = getattr(self.request, "htmx", None)
        return ["web/panel/_agent_state.html"] if htmx and not htmx.boosted else [self.template_name]


class Agents(ListPage):
    """The list of agents, for superadmins."""

    section = "agents"
    title = _l("Agents")
    icon = "server"
    guide = "agents-1"
    lead = _l("the machines that run sessions")
    table_class = AgentTable
    search_fields = ("name", "resource_group__name", "gateway_url")
    search_hint = _l("Name, group or address")
    filter_fields = ("resource_group", "status", "schedulable", "low_disk")
    create_address = "manage:join-token-new"
    create_label = _l("Add an agent")
    empty_title = _l("No agent has joined yet")
    empty_text = _l("Create a join token, and run its command on the machine.")
    more = (
        path("agents/<uuid:pk>/", AgentPage.as_view(), name="agent"),
        path("agents/<uuid:pk>/switches/", actions.SwitchPage.as_view(), name="agent-switches"),
        path("agents/<uuid:pk>/drain/", actions.DrainPage.as_view(), name="agent-drain"),
        path("agents/<uuid:pk>/drain/cancel/", actions.CancelDrainPage.as_view(), name="agent-cancel-drain"),
        path("agents/<uuid:pk>/move/", actions.MovePage.as_view(), name="agent-move"),
        path("agents/<uuid:pk>/revoke/", actions.RevokePage.as_view(), name="agent-revoke"),
        path("agents/<uuid:pk>/renew/", actions.RenewPage.as_view(), name="agent-renew"),
        path("agents/<uuid:pk>/terminate/", actions.TerminatePage.as_view(), name="agent-terminate"),
    )

    def get_queryset(self) -> QuerySet[Agent]:
        """Return the agents with the number of their kernels."""
        return Agent.objects.select_related("resource_group").annotate(kernel_count=_KERNELS)

    def get_table_kwargs(self) -> dict[str, Any]:
        """Return the occupied amounts of all agents for an export; empty for a page."""
        return {"taken": occupied_by_agent()} if self.request.GET.get("export") else {}

    def get_table(self, **kwargs: Any) -> AgentTable:
        """Return the table, with the occupied amounts of the agents on this page."""
        table: AgentTable = super().get_table(**kwargs)
        table.taken = table.taken or occupied_by_agent([row.record.pk for row in table.page.object_list])
        return table


def takes_sessions(agent: Agent) -> str:
    """Return whether new sessions start on the agent now: ``yes``, or ``no`` with the first reason."""
    if agent.status == Agent.Status.TERMINATED:
        return _("no (gone)")
    if agent.revoked_at:
        return _("no (refused)")
    if agent.status == Agent.Status.LOST:
        return _("no (lost)")
    if agent.is_drained or agent.status == Agent.Status.DRAINING:
        return _("no (draining)")
    if not agent.schedulable:
        return _("no (paused)")
    if agent.fault:
        return _("no (cannot start)")
    return _("no (unknown kernels)") if agent.unknown_running else _("yes")


def load_of(agent: Agent) -> list[tuple[str, int]]:
    """Return what the agent's machine used at its last report, in per cent. Empty if unknown."""
    live = agent.live if agent.status in (Agent.Status.ALIVE, Agent.Status.DRAINING) else {}
    parts = []
    if (cpu := live.get("cpu_pct")) is not None:
        parts.append((_("CPU"), round(cpu)))
    if live.get("mem_used") is not None and live.get("mem_total"):
        parts.append((_("Memory"), round(100 * live["mem_used"] / live["mem_total"])))
    if live.get("disk_free") is not None and live.get("disk_total"):
        parts.append((_("Disk"), round(100 - 100 * live["disk_free"] / live["disk_total"])))
    return parts


def disk_text(agent: Agent) -> str:
    """Return the free disk space of an agent: ``74 GiB of 252 GiB (29 %)``. Empty if unknown."""
    free, total = agent.live.get("disk_free"), agent.live.get("disk_total")
    if free is None or not total:
        return ""
    told = {"free": format_size(free), "total": format_size(total), "share": f"{100 * free / total:.0f}"}
    if agent.low_disk:
        return _("%(free)s of %(total)s (%(share)s %%), below its reserve") % told
    return _("%(free)s of %(total)s (%(share)s %%)") % told
