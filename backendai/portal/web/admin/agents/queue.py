"""The pending sessions by resource group, in their order, with the reasons, and actions for administrators."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar
from uuid import UUID

import django_tables2 as tables
from django import forms
from django.contrib import messages
from django.db.models import F, QuerySet
from django.http import HttpResponse
from django.middleware.csrf import get_token
from django.shortcuts import get_object_or_404, redirect
from django.urls import path, reverse
from django.utils.functional import cached_property
from django.utils.html import format_html
from django.utils.translation import gettext_lazy as _l
from django.views.decorators.http import require_POST

from backendai.base.core.errors import UserError
from backendai.base.texts.messages import in_words
from backendai.base.texts.translation import gettext as _
from backendai.base.texts.translation import ngettext
from backendai.domain.accounts.models import User
from backendai.domain.cluster.groups.session_defaults import HIGHEST_PRIORITY
from backendai.domain.cluster.models import ResourceGroup
from backendai.domain.compute.models import ComputeSession
from backendai.domain.compute.services.launching.priorities import front_priorities, set_priority
from backendai.domain.forecasts.models import ForecastScore, StartForecast
from backendai.domain.planning.queue_heads import heads_of
from backendai.portal.web.admin.access import administrator, panel_page
from backendai.portal.web.admin.listing import PAGE_SIZE, ListPage, NumberColumn, PanelFilter, PanelTable, TimeColumn
from backendai.portal.web.frame.requests import PageRequest
from backendai.portal.web.frame.time_words import clock
from backendai.portal.web.templatetags.portal import amounts, icon, soon, with_times

_ANY = UUID(int=0)
_MOST_SCORES = 20


def addresses_of(page: str) -> Callable[[UUID], str]:
    """Return a function that builds the address of an object's page from its id.

    Lists use it, as it resolves the route once instead of for every row.
    """
    before, after = reverse(page, args=[_ANY]).split(str(_ANY))
    return lambda key: f"{before}{key}{after}"


_NEXT_FIRST = ("resource_group__name", F("queue_position").asc(nulls_last=True), "-priority", "created_at")


class QueueTable(PanelTable):
    """A table with one row for each pending session, in the order of the queue."""

    choose = tables.Column(
        "", accessor="pk", orderable=False, exclude_from_export=True, attrs={"td": {"class": "cell-choose"}}
    )
    place = NumberColumn(_l("Order"), accessor="queue_position", default="–")
    name = tables.Column(_l("Session"), attrs={"td": {"class": "queue-name"}})
    owner = tables.Column(_l("Owner"), accessor="owner__email", attrs={"td": {"class": "queue-name"}})
    resource_group = tables.Column(_l("Group"), attrs={"td": {"class": "queue-group"}})
    asks = tables.Column(_l("Requests"), accessor="slots", orderable=False)
    reason = tables.Column(
        _l("Reason"),
        accessor="reason_text",
        orderable=False,
        empty_values=(),
        attrs={"td": {"class": "queue-why"}},
    )
    expected = TimeColumn(_l("Expected start"), accessor="start_forecast__expected", words=soon)
    created_at = TimeColumn(_l("Since"), attrs={"td": {"class": "no-break"}})
    priority = tables.Column(_l("Priority"))

    class Meta(PanelTable.Meta):
        model = ComputeSession
        order_by = "place"

    def order_place(self, rows: QuerySet[Any], is_descending: bool) -> tuple[QuerySet[Any], bool]:
        """Return the rows by group, and in each by their place in the queue.

        Sessions that no pass has considered come last.
        """
        group, place, *rest = _NEXT_FIRST
        last = F("queue_position").desc(nulls_last=True)
        return rows.order_by(group, last if is_descending else place, *rest), True

    def render_choose(self, record: ComputeSession) -> str:
        """Return the check box that selects the session."""
        return format_html(
            '<input class="form-check-input" type="checkbox" name="session" value="{}" form="chosen" aria-label="{}">',
            record.pk,
            _("Select %(name)s") % {"name": record.name},
        )

    def render_name(self, record: ComputeSession) -> str:
        """Return a link to the session."""
        return format_html('<a href="{}"><bdi>{}</bdi></a>', self._page_of(record.pk), record.name)

    def value_name(self, value: str) -> str:
        return value

    def render_asks(self, record: ComputeSession) -> str:
        """Return the requested amounts: the total, or those of each kernel with the number of kernels."""
        if record.total_slots is not None:
            return amounts(record.total)
        each = amounts(record.kernel_slots)
        return each if record.cluster_size == 1 else f"{each} × {record.cluster_size}"

    def value_asks(self, record: ComputeSession) -> str:
        """Return the requested amounts as JSON text for files."""
        if record.total_slots is not None:
            return json.dumps(record.total_slots, sort_keys=True)
        return f"{json.dumps(record.slots, sort_keys=True)} × {record.cluster_size}"

    def render_reason(self, record: ComputeSession) -> str:
        """Return why the session waits; marks sessions that can never start."""
        text = with_times(in_words(record.reason_text) or _("No scheduler pass has considered it yet."))
        if not record.status_data.get("never"):
            return text
        return format_html('<span class="status tone-bad">{}</span> {}', _("Cannot start"), text)

    def value_reason(self, record: ComputeSession) -> str:
        return record.reason_text

    def render_priority(self, record: ComputeSession) -> str:
        """Return a form that changes the priority."""
        label = _("Priority of %(name)s") % {"name": record.name}
        return format_html(
            '<form class="priority-form" method="post" action="{}" novalidate>'
            '<input type="hidden" name="csrfmiddlewaretoken" value="{}"><input type="hidden" name="back" value="{}">'
            '<input class="form-control" type="number" name="priority" value="{}" min="0" max="{}" required'
            ' aria-label="{}"><button class="btn btn-sm btn-icon-only" type="submit" title="{}">{}'
            '<span class="visually-hidden">{}</span></button></form>',
            self._priority_of(record.pk),
            self._token,
            self.request.GET.urlencode(),
            record.priority,
            HIGHEST_PRIORITY,
            label,
            _("Set priority"),
            icon("check"),
            _("Set priority of %(name)s") % {"name": record.name},
        )

    def value_priority(self, value: int) -> int:
        return value

    @cached_property
    def _page_of(self) -> Callable[[UUID], str]:
        return addresses_of("web:session")

    @cached_property
    def _priority_of(self) -> Callable[[UUID], str]:
        return addresses_of("manage:queue-priority")

    @cached_property
    def _token(self) -> str:
        # Made once: each would be written in another way, and there are fifty.
        return get_token(self.request)


class QueueFilter(PanelFilter):
    """Filters pending sessions by words and group."""

    search_fields = ("name", "owner__email", "status_message")
    search_hint = _l("Name, owner or reason")

    class Meta:
        model = ComputeSession
        fields: ClassVar[list[str]] = ["resource_group"]

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        groups = ResourceGroup.objects.visible_to(self.request.user)
        self.filters["resource_group"].extra["queryset"] = groups.order_by("name")


@require_POST
@panel_page(administrator)
def queue_priority(request: PageRequest, pk: UUID) -> HttpResponse:
    """Change the priority of a session, and redirect to the queue."""
    visible = ComputeSession.objects.visible_to(request.user).select_related("owner", "project__domain")
    session = get_object_or_404(visible, pk=pk)
    try:
        priority = forms.IntegerField().clean(request.POST.get("priority", ""))
        set_priority(session, request.user, priority)
    except forms.ValidationError as error:
        messages.error(request, f"{session.name}: {_('Priority')}: {' '.join(error.messages)}")
    except UserError as error:
        messages.error(request, f"{session.name}: {in_words(error.message)}")
    else:
        said = _("%(name)s now has priority %(priority)s.") % {"name": session.name, "priority": priority}
        messages.success(request, said)
    return _back_to_queue(request.POST.get("back", ""))


@require_POST
@panel_page(administrator)
def queue_priorities(request: PageRequest) -> HttpResponse:
    """Change the priority of the selected sessions, or put them first in their groups; then redirect to the queue."""
    chosen = [text for text in request.POST.getlist("session")[:PAGE_SIZE] if _is_id(text)]
    visible = ComputeSession.objects.visible_to(request.user).select_related("owner", "project__domain")
    sessions = list(visible.filter(pk__in=chosen).order_by("created_at", "pk"))
    if not sessions:
        messages.error(request, _("Select the sessions first."))
    done = 0
    try:
        if request.POST.get("action") == "front":
            wanted = front_priorities(sessions)
        else:
            priority: int = forms.IntegerField().clean(request.POST.get("priority", ""))
            wanted = dict.fromkeys([session.pk for session in sessions], priority)
    except forms.ValidationError as error:
        messages.error(request, f"{_('Priority')}: {' '.join(error.messages)}")
        sessions = []
    for session in sessions:
        try:
            set_priority(session, request.user, wanted[session.pk])
            done += 1
        except UserError as error:
            messages.error(request, f"{session.name}: {in_words(error.message)}")
    if done:
        text = ngettext("%(number)s session has a new priority.", "%(number)s sessions have a new priority.", done)
        messages.success(request, text % {"number": done})
    return _back_to_queue(request.POST.get("back", "").partition("?")[2])


def _is_id(text: str) -> bool:
    try:
        UUID(text)
    except ValueError:
        return False
    return True


def _back_to_queue(query: str) -> HttpResponse:
    query = query[:2000]
    return redirect(f"{reverse('manage:queue')}?{query}" if query else reverse("manage:queue"))


@dataclass(frozen=True, slots=True)
class _Score:
    """How the forecasts of a group came true, in words; ``worst`` names only sessions that the viewer may see."""

    group: ResourceGroup
    number: int
    inside: str = ""
    error: str = ""
    bias: float | None = None
    is_reliable: bool = False
    worst: Sequence[StartForecast] = ()


def _scores_for(user: User) -> list[_Score]:
    """Return the scores of the first groups that the user may see. Three queries."""
    groups = ResourceGroup.objects.visible_to(user).select_related("forecast_score").order_by("name")[:_MOST_SCORES]
    told = {group: getattr(group, "forecast_score", None) for group in groups}
    worst = [pk for score in told.values() if score for pk in score.worst]
    seen = ComputeSession.objects.visible_to(user).filter(pk__in=worst)
    rows = StartForecast.objects.filter(pk__in=seen.values("pk")).select_related("session")
    by_id = {str(row.pk): row for row in rows} if worst else {}
    return [_score(group, score, by_id) for group, score in told.items()]


def _score(group: ResourceGroup, score: ForecastScore | None, seen: Mapping[str, StartForecast]) -> _Score:
    if score is None:
        return _Score(group, 0)
    worst = [seen[pk] for pk in score.worst if pk in seen]
    error = clock(int(score.error_seconds))
    return _Score(group, score.number, f"{score.inside:.0%}", error, score.bias, score.is_reliable, worst)


class Queue(ListPage):
    """The pending sessions that the administrator may see."""

    section = "queue"
    title = _l("Pending sessions")
    icon = "clock"
    guide = "who-starts-next"
    rule = staticmethod(administrator)
    lead = _l("in scheduling order, group by group; priorities go from 0 to 100")
    template_name = "web/panel/queue.html"
    table_class = QueueTable
    filterset_class = QueueFilter
    empty_title = _l("No pending sessions")
    empty_text = _l("Sessions that cannot start at once appear here, with the reason.")
    more = (
        path("queue/<uuid:pk>/priority/", queue_priority, name="queue-priority"),
        path("queue/priorities/", queue_priorities, name="queue-priorities"),
    )

    def get_queryset(self) -> QuerySet[ComputeSession]:
        """Return the pending sessions that this administrator may see."""
        visible: QuerySet[ComputeSession] = ComputeSession.objects.visible_to(self.viewer).pending()
        return visible.select_related("owner", "resource_group", "start_forecast")

    def get_context_data(self, **kwargs: Any) -> dict[str, Any]:
        """Return the context with the session that is first in line in each group on this page."""
        context = super().get_context_data(**kwargs)
        rows = [row.record for row in context["table"].page.object_list]
        groups = {row.resource_group_id: row.resource_group for row in rows}
        heads = heads_of(self.viewer, list(groups.values())) if groups else []
        scores = [] if self._is_part() else _scores_for(self.viewer)
        return context | {"heads": heads, "scores": scores, "highest_priority": HIGHEST_PRIORITY}

    def get_template_names(self) -> list[str]:
        """Return the template of the list with its bar for htmx, else that of the page."""
        return ["web/panel/_queue_body.html"] if self._is_part() else [self.template_name]
