"""Allocations and measured usage over some days, as JSON or CSV."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from django.http import StreamingHttpResponse
from django.http.response import HttpResponseBase
from django.utils import timezone
from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.generics import GenericAPIView
from rest_framework.request import Request
from rest_framework.response import Response

from backendai.base.core.csv_cells import csv_lines
from backendai.domain.usage.statistics import GROUPINGS, Line, Statistics, statistics
from backendai.portal.api.frame.authentication import user_of
from backendai.portal.api.frame.parsing import BoundedSerializer, DayField, values_of


class StatisticsQuery(BoundedSerializer):
    """The days, and the grouping."""

    first = DayField(required=False, help_text="UTC; default: 30 days up to the last.")
    last = DayField(required=False, help_text="UTC; default: today.")
    by = serializers.ChoiceField(choices=list(GROUPINGS), default="user")
    as_file = serializers.ChoiceField(choices=["json", "csv"], default="json", help_text="csv: as a file.")


class LineBody(serializers.Serializer[Any]):
    """The allocations of one user, project, domain, group or day."""

    name = serializers.CharField()
    hours = serializers.DictField(child=serializers.FloatField(), help_text="By slot; of sizes GiB-hours.")
    used = serializers.DictField(
        child=serializers.FloatField(), help_text="Hours that programs really used, where measured."
    )
    measured = serializers.DictField(child=serializers.FloatField(), help_text="Allocated hours with measurements.")


class StatisticsBody(serializers.Serializer[Any]):
    """The allocations that are visible to the user."""

    first = serializers.DateField()
    last = serializers.DateField()
    by = serializers.CharField()
    slots = serializers.ListField(child=serializers.CharField())
    lines = LineBody(many=True)
    total = LineBody()


class StatisticsView(GenericAPIView[Any]):
    """Allocations over time: everybody's for superadmins, the domain's for its admins, otherwise the user's own."""

    serializer_class = StatisticsBody

    @extend_schema(parameters=[StatisticsQuery], responses=StatisticsBody)
    def get(self, request: Request) -> HttpResponseBase:
        """Return the hours by slot of each user, project, domain, resource group or day."""
        asked = values_of(StatisticsQuery, request.query_params)
        last = asked.get("last") or timezone.now().date()
        found = statistics(user_of(request), first=asked.get("first"), last=last, by=asked["by"])
        if asked["as_file"] == "csv":
            answer = StreamingHttpResponse(csv_lines(rows_of(found)), content_type="text/csv; charset=utf-8")
            answer["Content-Disposition"] = 'attachment; filename="statistics.csv"'
            return answer
        return Response(self.get_serializer(found).data)


def rows_of(found: Statistics) -> Iterator[list[Any]]:
    """Yield the rows of a CSV file: a heading, then one row for each line.

    The hours used follow the hours allocated.
    """
    used = found.measured_slots
    yield [found.by, *found.slots, *(f"{slot} used" for slot in used), *(f"{slot} measured" for slot in used)]
    for line in found.lines:
        yield [line.name, *cells_of(found, line)]


def cells_of(found: Statistics, line: Line) -> list[str]:
    """Return the hours of a line in the order of the heading, as text."""
    held = [line.hours.get(slot, 0.0) for slot in found.slots]
    used = [line.used.get(slot, 0.0) for slot in found.measured_slots]
    measured = [line.measured.get(slot, 0.0) for slot in found.measured_slots]
    return [f"{hours:.3f}" for hours in (*held, *used, *measured)]
