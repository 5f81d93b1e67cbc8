"""Statistics of allocations over some days, as a chart, a table and a file."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from django import forms
from django.http import HttpRequest, StreamingHttpResponse
from django.utils import timezone
from django.utils.translation import gettext_lazy as _l
from django.views.generic import TemplateView

from backendai.accounts.models import User
from backendai.core.csv_cells import csv_lines
from backendai.core.errors import UserError
from backendai.texts.messages import in_words, in_words_lazy
from backendai.usage.statistics import GROUPINGS, Line, Statistics, statistics, unit_of, usual_first
from backendai.web.charts import chart_of, usual_slot
from backendai.web.panel.access import PanelPage
from backendai.web.panel.editing import show_error
from backendai.web.resources import name_of_slot


def administrator(user: User) -> bool:
    """Return whether the user administers the platform or a domain. Domain admins see the part of their domain."""
    return user.role != User.Role.USER


class StatisticsForm(forms.Form):
    """The days, the grouping, and the slot of the chart."""

    first = forms.DateField(required=False, label=_l("From"), widget=forms.DateInput(attrs={"type": "date"}))
    last = forms.DateField(required=False, label=_l("To"), widget=forms.DateInput(attrs={"type": "date"}))
    by = forms.ChoiceField(
        required=False,
        label=_l("By"),
        choices=[(key, in_words_lazy(key.replace("-", " ").capitalize())) for key in GROUPINGS],
    )
    slot = forms.CharField(required=False, label=_l("Chart of"), max_length=64)


class StatisticsPage(PanelPage, TemplateView):
    """Statistics of allocations; for domain admins those of their domain."""

    section = "statistics"
    title = _l("Statistics")
    template_name = "web/panel/statistics.html"
    rule = staticmethod(administrator)

    def get(self, request: HttpRequest, *args: Any, **kwargs: Any) -> Any:
        """Show the page, or send the table as a file."""
        asked = request.GET.copy()
        if not (asked.get("first") or asked.get("last")):
            last = timezone.now().date()
            asked["first"], asked["last"] = usual_first(last).isoformat(), last.isoformat()
        form = StatisticsForm(asked)
        found = self._found(form)
        if found and request.GET.get("export") == "csv":
            answer = StreamingHttpResponse(csv_lines(_rows(found)), content_type="text/csv; charset=utf-8")
            answer["Content-Disposition"] = 'attachment; filename="statistics.csv"'
            return answer
        status = 200 if found else 422
        return self.render_to_response(self.get_context_data(form=form, found=found), status=status)

    def get_context_data(self, **kwargs: Any) -> dict[str, Any]:
        """Return the context with the table, and the chart of the chosen slot (default: GPUs if there are any)."""
        found: Statistics | None = kwargs["found"]
        if found is None:
            return super().get_context_data(**kwargs)
        wanted = kwargs["form"].cleaned_data["slot"]
        slot = wanted if wanted in found.slots else usual_slot(found.slots)
        query = self.request.GET.copy()
        query["export"] = "csv"
        shown = {
            "drawn": chart_of(found.days, slot),
            "slot": slot,
            "chart_title": _heading(slot),
            "headings": [_heading(one) for one in found.slots],
            "choices": [(one, name_of_slot(one)) for one in found.slots],
            "rows": [(line.name, _cells(found, line)) for line in found.lines],
            "total": _cells(found, found.total),
            "is_measured": bool(found.measured_slots),
            "export_query": query.urlencode(),
        }
        return super().get_context_data(**(shown | kwargs))

    def _found(self, form: StatisticsForm) -> Statistics | None:
        if not form.is_valid():
            return None
        asked = form.cleaned_data
        last = asked["last"] or timezone.now().date()
        assert isinstance(self.request.user, User)
        try:
            return statistics(self.request.user, first=asked["first"], last=last, by=asked["by"] or "user")
        except UserError as error:
            show_error(form, error)
            return None


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
