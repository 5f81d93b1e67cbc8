"""Statistics of allocations over some days, as a chart, a table and a file."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from django import forms
from django.core.validators import MaxValueValidator, MinValueValidator
from django.http import QueryDict, StreamingHttpResponse
from django.utils import timezone
from django.utils.translation import gettext_lazy as _l

from backendai.base.core.csv_cells import csv_lines
from backendai.base.core.durations import EARLIEST, LATEST
from backendai.base.core.errors import UserError
from backendai.base.texts.messages import in_words, in_words_lazy
from backendai.domain.accounts.models import User
from backendai.domain.usage.statistics import GROUPINGS, Line, Statistics, statistics, unit_of, usual_first
from backendai.portal.web.account.menu import blame
from backendai.portal.web.dashboard.resources import name_of_slot
from backendai.portal.web.frame.charts import chart_of, usual_slot

_DAY = forms.DateInput(attrs={"type": "date"})
_KNOWN_DAYS = [MinValueValidator(EARLIEST.date()), MaxValueValidator(LATEST.date())]


class StatisticsForm(forms.Form):
    """The days, the grouping, and the slot of the chart."""

    first = forms.DateField(required=False, label=_l("From"), widget=_DAY, validators=_KNOWN_DAYS)
    last = forms.DateField(required=False, label=_l("To"), widget=_DAY, validators=_KNOWN_DAYS)
    by = forms.ChoiceField(
        required=False,
        label=_l("By"),
        choices=[(key, in_words_lazy(key.replace("-", " ").capitalize())) for key in GROUPINGS],
    )
    slot = forms.CharField(required=False, label=_l("Chart of"), max_length=64)


def ask_statistics(
    user: User, query: QueryDict, *, by: str, is_personal: bool = False
) -> tuple[StatisticsForm, Statistics | None]:
    """Return the form as filled by the query, and the statistics, or None with the error at its field.

    ``by``: the grouping of a query without one. Without days it covers the usual ones up to today.
    """
    asked = query.copy()
    if not (asked.get("first") or asked.get("last")):
        last = timezone.now().date()
        asked["first"], asked["last"] = usual_first(last).isoformat(), last.isoformat()
    if not asked.get("by"):
        asked["by"] = by
    form = StatisticsForm(asked)
    if not form.is_valid():
        return form, None
    said = form.cleaned_data
    last = said["last"] or timezone.now().date()
    try:
        return form, statistics(user, first=said["first"], last=last, by=said["by"], is_personal=is_personal)
    except UserError as error:
        blame(form, error)
        return form, None


def shown_statistics(form: StatisticsForm, found: Statistics | None, query: QueryDict) -> dict[str, Any]:
    """Return the context of the table, and of the chart of the chosen slot (default: GPUs if there are any)."""
    if found is None:
        return {"form": form, "found": None}
    wanted = form.cleaned_data["slot"]
    slot = wanted if wanted in found.slots else usual_slot(found.slots)
    export = query.copy()
    export["export"] = "csv"
    return {
        "form": form,
        "found": found,
        "drawn": chart_of(found.days, slot),
        "slot": slot,
        "chart_title": _heading(slot),
        "headings": [_heading(one) for one in found.slots],
        "choices": [(one, name_of_slot(one)) for one in found.slots],
        "rows": [(line.name, _cells(found, line)) for line in found.lines],
        "total": _cells(found, found.total),
        "is_measured": bool(found.measured_slots),
        "export_query": export.urlencode(),
    }


def statistics_file(found: Statistics) -> StreamingHttpResponse:
    """Return the table as a CSV file."""
    answer = StreamingHttpResponse(csv_lines(_rows(found)), content_type="text/csv; charset=utf-8")
    answer["Content-Disposition"] = 'attachment; filename="statistics.csv"'
    return answer


def _rows(found: Statistics) -> Iterator[list[Any]]:
    used = found.measured_slots
    yield [found.by, *found.slots, *(f"{slot} used" for slot in used), *(f"{slot} measured" for slot in used)]
    for line in found.lines:
        held = [line.hours.get(slot, 0.0) for slot in found.slots]
        told = [part.get(slot, 0.0) for part in (line.used, line.measured) for slot in used]
        yield [line.name, *(f"{hours:.2f}" for hours in (*held, *told))]


def _cells(found: Statistics, line: Line) -> list[tuple[str, str, str]]:
    """Return for each slot its heading, the allocated hours, and the used part in per cent as far as measured."""
    cells = []
    for slot in found.slots:
        part = line.used_part(slot)
        used = "" if part is None else f"{100 * part:.0f} %"
        cells.append((_heading(slot), f"{line.hours.get(slot, 0.0):.2f}", used))
    return cells


def _heading(slot: str) -> str:
    return f"{name_of_slot(slot)} {in_words(unit_of(slot))}"
