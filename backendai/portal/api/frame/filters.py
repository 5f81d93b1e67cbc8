"""Filters of the lists of sessions, history, jobs, images and the audit log."""

from __future__ import annotations

from typing import Any

import django_filters.rest_framework as filters
from django.core.validators import MaxValueValidator, MinValueValidator
from django.db.models import Exists, OuterRef, Q, QuerySet
from rest_framework.request import Request

from backendai.base.core.durations import EARLIEST, LATEST
from backendai.base.core.session_kinds import kind_choices
from backendai.base.texts.searching import rows_that_say
from backendai.domain.activity.models import AuditEntry, BackgroundJob
from backendai.domain.activity.refusals import IS_REFUSED
from backendai.domain.catalog.models import Image
from backendai.domain.compute.models import ComputeSession, Kernel, SchedulingRecord
from backendai.domain.compute.querysets import with_labels
from backendai.domain.compute.status import LIVE, Outcome, Phase, Status
from backendai.domain.planning.steps import messages_of


class RequestedFilters(filters.DjangoFilterBackend):
    """A filter backend that builds its form only for requests with filters in the query.

    Building it costs as much as authentication.
    """

    def filter_queryset(self, request: Request, queryset: QuerySet[Any], view: Any) -> QuerySet[Any]:
        """Return the filtered rows. Raises ValidationError for an invalid filter."""
        known = self.get_filterset_class(view, queryset)
        if known and known.base_filters.keys().isdisjoint(request.query_params):
            return queryset
        return super().filter_queryset(request, queryset, view)


def _time(field: str, comparison: str) -> filters.IsoDateTimeFilter:
    """Return a filter by a time between 1970 and 3000, which each database can compare."""
    bounds = [MinValueValidator(EARLIEST), MaxValueValidator(LATEST)]
    return filters.IsoDateTimeFilter(field_name=field, lookup_expr=comparison, validators=bounds)


class SessionFilter(filters.FilterSet):
    """Filters compute sessions; ``status`` may be given several times."""

    status = filters.MultipleChoiceFilter(choices=Status.choices)
    type = filters.ChoiceFilter(field_name="session_type", choices=kind_choices())
    name = filters.CharFilter(max_length=64)
    resource_group = filters.CharFilter(field_name="resource_group__name", max_length=63)
    owner = filters.CharFilter(field_name="owner__email", lookup_expr="iexact", max_length=254)
    project = filters.CharFilter(field_name="project__name", max_length=64, help_text="Its name.")
    image = filters.CharFilter(field_name="image__name", max_length=255, help_text="Its name.")
    agent = filters.CharFilter(method="filter_agent", max_length=63, help_text="The name of one that has its kernels.")
    label = filters.CharFilter(method="filter_label", max_length=200, help_text="key or key=value; may be repeated.")
    search = filters.CharFilter(field_name="name", lookup_expr="icontains", max_length=64, help_text="In its name.")
    created_after = _time("created_at", "gte")
    created_before = _time("created_at", "lt")
    ended_after = _time("ended_at", "gte")
    ended_before = _time("ended_at", "lt")
    live = filters.BooleanFilter(method="filter_live", help_text="true: live; false: ended.")

    class Meta:
        model = ComputeSession
        fields: list[str] = []

    def filter_agent(self, queryset: QuerySet[Any], name: str, value: str) -> QuerySet[Any]:
        """Return the sessions with a kernel on the agent, now or at last."""
        return queryset.filter(Exists(Kernel.objects.filter(session=OuterRef("pk"), agent__name=value)))

    def filter_label(self, queryset: QuerySet[Any], name: str, value: str) -> QuerySet[Any]:
        """Return the sessions with all these labels."""
        return with_labels(queryset, self.data.getlist(name))

    def filter_live(self, queryset: QuerySet[Any], name: str, value: bool) -> QuerySet[Any]:
        """Return the sessions that have not ended, or those that have."""
        live = Q(status__in=sorted(LIVE))
        return queryset.filter(live if value else ~live)


class HistoryFilter(filters.FilterSet):
    """Filters a session's scheduling history."""

    id = filters.UUIDFilter(field_name="uid")
    phase = filters.MultipleChoiceFilter(choices=Phase.choices)
    result = filters.MultipleChoiceFilter(choices=Outcome.choices)
    from_status = filters.MultipleChoiceFilter(choices=Status.choices)
    to_status = filters.MultipleChoiceFilter(choices=Status.choices)
    error_code = filters.CharFilter(max_length=64)
    message = filters.CharFilter(
        method="filter_message",
        max_length=200,
        help_text="A message of the row or its steps contains this text, in English or the language of the request.",
    )

    class Meta:
        model = SchedulingRecord
        fields: list[str] = []

    def filter_message(self, queryset: QuerySet[Any], name: str, value: str) -> QuerySet[Any]:
        """Return the rows that say this text."""
        return rows_that_say(queryset, value, messages_of)


class AuditFilter(filters.FilterSet):
    """Filters the audit log."""

    action = filters.CharFilter(lookup_expr="startswith", max_length=64, help_text="Its beginning: session.")
    actor = filters.CharFilter(field_name="actor__email", lookup_expr="iexact", max_length=254)
    target_type = filters.CharFilter(max_length=32)
    target_id = filters.CharFilter(max_length=64)
    address = filters.CharFilter(max_length=45)
    request_id = filters.CharFilter(max_length=12)
    refused = filters.BooleanFilter(method="filter_refused", help_text="true: refused or failed; false: done.")
    after = _time("at", "gte")
    before = _time("at", "lt")

    class Meta:
        model = AuditEntry
        fields: list[str] = []

    def filter_refused(self, queryset: QuerySet[Any], name: str, value: bool) -> QuerySet[Any]:
        """Return the refused actions, including failed sign-ins, or the others."""
        return queryset.filter(IS_REFUSED if value else ~IS_REFUSED)


class JobFilter(filters.FilterSet):
    """Filters background jobs; ``status`` may be given several times."""

    status = filters.MultipleChoiceFilter(choices=BackgroundJob.Status.choices)
    kind = filters.CharFilter(max_length=32)
    subject = filters.CharFilter(max_length=255)

    class Meta:
        model = BackgroundJob
        fields: list[str] = []


class ImageFilter(filters.FilterSet):
    """Filters images."""

    mine = filters.BooleanFilter(method="filter_mine", help_text="true: the user's own images; false: others.")

    class Meta:
        model = Image
        fields: list[str] = []

    def filter_mine(self, queryset: QuerySet[Any], name: str, value: bool) -> QuerySet[Any]:
        """Return the user's own images, or all others."""
        own = Q(is_customized=True, owner=self.request.user.pk if self.request else None)
        return queryset.filter(own) if value else queryset.exclude(own)
