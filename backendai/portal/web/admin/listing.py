"""Base classes of the panel's lists: filters, order, pages, and export as CSV."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import django_filters
import django_tables2 as tables
from django import forms
from django.core.paginator import EmptyPage, Paginator
from django.db import models
from django.db.models import Q, QuerySet
from django.http import HttpRequest, HttpResponseBase, StreamingHttpResponse
from django.utils.functional import Promise, cached_property
from django.utils.text import slugify
from django.utils.translation import gettext_lazy as _l
from django.utils.translation import override
from django_filters.filterset import filterset_factory
from django_filters.views import FilterView
from django_tables2.data import TableQuerysetData
from django_tables2.paginators import LazyPaginator
from django_tables2.views import SingleTableMixin

from backendai.base.core.csv_cells import csv_lines
from backendai.base.texts.messages import in_words
from backendai.portal.web.admin.access import PanelPage
from backendai.portal.web.admin.forms import name_text, say_in_words
from backendai.portal.web.templatetags.portal import ago

PAGE_SIZE = 50
MOST_EXPORTED = 100_000


class StableRows(TableQuerysetData):
    """Table rows in a complete order, so that no row is missing or repeated across pages."""

    def order_by(self, aliases: Any) -> None:
        """Sort by these columns, and then by key. A sliced queryset keeps its order."""
        if self.data.query.is_sliced:
            return
        super().order_by(aliases)
        self.data: QuerySet[Any] = self.data.order_by(*self.data.query.order_by, "pk")


class UncountedPages(LazyPaginator):
    """Pages of a table whose rows are not counted. A page number too large for the database gives an empty page."""

    def validate_number(self, number: Any) -> int:
        """Return the page number. Raises EmptyPage if it is too large for the database."""
        checked: int = super().validate_number(number)
        if checked * self.per_page > sys.maxsize:
            raise EmptyPage
        return checked


class PanelTable(tables.Table):
    """A table of the panel. It has the columns that its class declares.

    Columns with only buttons have ``exclude_from_export=True``. ``Meta.order_by`` is the default order.
    """

    def __init__(self, *args: Any, data: Any = None, **kwargs: Any) -> None:
        rows = StableRows(data) if isinstance(data, QuerySet) else data
        super().__init__(*args, data=rows, **kwargs)
        for name, column in self.columns.items():
            field = getattr(self._meta.model, name, None)
            if getattr(getattr(field, "field", None), "choices", None) and not hasattr(self, f"render_{name}"):
                column.render = _choice

    class Meta:
        template_name = "web/panel/_table.html"
        default = "–"
        fields: ClassVar[Sequence[str]] = ()
        attrs: ClassVar[dict[str, Any]] = {"class": "rows panel-rows"}


def _choice(value: Any) -> str:
    """Return the translated label of a choice."""
    return in_words(value)


class NumberColumn(tables.Column):
    """A column of numbers, which are aligned at their last digit."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, attrs={"td": {"class": "number"}}, **kwargs)


class YesNoColumn(tables.BooleanColumn):
    """A column that says yes or no."""

    def __init__(self, title: str | Promise) -> None:
        super().__init__(verbose_name=title, yesno=(_l("yes"), _l("no")))


class TimeColumn(tables.Column):
    """A column of times: in words on the page, in ISO 8601 in files."""

    def __init__(self, *args: Any, words: Callable[[Any], str] = ago, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._words = words

    def render(self, value: Any) -> str:
        """Return the time in words."""
        return self._words(value)

    def value(self, value: Any) -> str:
        """Return the time for files."""
        return str(value.isoformat())


class NameColumn(tables.Column):
    """A column of names that people have given; each keeps its own writing direction."""

    def render(self, value: Any) -> str:
        """Return the name."""
        return name_text(str(value))

    def value(self, value: Any) -> str:
        """Return the name for files."""
        return str(value)


class YesNo(forms.Select):
    """A select input with yes, no, or either."""

    def __init__(self, attrs: dict[str, Any] | None = None) -> None:
        super().__init__(attrs, choices=[("", _l("any")), ("true", _l("yes")), ("false", _l("no"))])


class DayFilter(django_filters.DateFilter):
    """A filter by a day, with the browser's calendar."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, widget=forms.DateInput({"type": "date"}), **kwargs)


class PanelFilter(django_filters.FilterSet):
    """The filters of a list; the search box looks for words in ``search_fields``. ``rare_fields`` are folded."""

    FILTER_DEFAULTS: ClassVar[dict[Any, Any]] = django_filters.FilterSet.FILTER_DEFAULTS | {
        models.BooleanField: {
            "filter_class": django_filters.BooleanFilter,
            "extra": lambda field: {"widget": YesNo, "label": field.verbose_name.removeprefix("is ").capitalize()},
        }
    }
    search_fields: ClassVar[tuple[str, ...]] = ()
    rare_fields: ClassVar[tuple[str, ...]] = ()
    search_hint: str | Promise = _l("Search")

    q = django_filters.CharFilter(method="search", label=_l("Search"))

    @cached_property
    def form(self) -> forms.Form:
        """The filter form, translated into the language of the page."""
        form: forms.Form = super().form
        say_in_words(form)
        return form

    @property
    def uses_rare_fields(self) -> bool:
        """Whether one of the folded filters is set."""
        return any(self.form[name].value() for name in self.rare_fields)

    def search(self, rows: QuerySet[Any], name: str, text: str) -> QuerySet[Any]:
        """Return the rows that contain every word in some search field."""
        for word in text.replace("\0", "")[:100].split():
            one = Q()
            for field in self.search_fields:
                one |= Q(**{f"{field}__icontains": word})
            rows = rows.filter(one)
        return rows


class ListPage(PanelPage, SingleTableMixin, FilterView):
    """A page with a list.

    Subclasses set ``table_class``, ``title``, ``section`` and ``get_queryset``, and either ``filterset_class`` or the
    ``search_fields``, ``search_hint`` and ``filter_fields`` of a plain one. ``create_address``: the page of the button
    ``create_label``; ``empty_text``: the text of an empty list. ``counts_rows = False`` avoids counting a very long
    table.
    """

    template_name = "web/panel/list.html"
    page_size = PAGE_SIZE
    strict = False
    counts_rows: ClassVar[bool] = True
    lead: str | Promise = ""
    empty_title: str | Promise = _l("Nothing here yet")
    empty_text: str | Promise = ""
    create_address = ""
    create_label: str | Promise = _l("New")
    search_fields: ClassVar[tuple[str, ...]] = ()
    search_hint: str | Promise = PanelFilter.search_hint
    filter_fields: ClassVar[Sequence[str]] = ()

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        if cls.filterset_class is None and cls.search_fields:
            cls.filterset_class = filterset_factory(cls.table_class._meta.model, PanelFilter, cls.filter_fields)
            cls.filterset_class.search_fields, cls.filterset_class.search_hint = cls.search_fields, cls.search_hint

    def get(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponseBase:
        """Show the list; with ``?export=csv`` send the filtered rows as a file."""
        answer: HttpResponseBase = super().get(request, *args, **kwargs)
        return self._export() if request.GET.get("export") == "csv" else answer

    def get_template_names(self) -> list[str]:
        """Return the template of the list alone for htmx, else that of the page."""
        return ["web/panel/_list_body.html"] if self._is_part() else [self.template_name]

    def get_context_data(self, **kwargs: Any) -> dict[str, Any]:
        """Return the context of the list page."""
        context = super().get_context_data(**kwargs)
        page = {
            "lead": self.lead,
            "counts_rows": self.counts_rows,
            "empty_title": self.empty_title,
            "empty_text": self.empty_text,
            "create_address": self.create_address,
            "create_label": self.create_label,
            "is_filtered": any(value for name, value in self.request.GET.items() if name in self.filterset.filters),
            "search_hint": self.filterset.search_hint,
            "export_query": self._export_query(),
        }
        return page | context

    def get_table_pagination(self, table: Any) -> dict[str, Any]:
        """Return the pagination, whose page size the address cannot change."""
        return {"per_page": self.page_size, "paginator_class": Paginator if self.counts_rows else UncountedPages}

    def _is_part(self) -> bool:
        htmx: Any = getattr(self.request, "htmx", None)
        return bool(htmx) and not htmx.boosted

    def _export_query(self) -> str:
        query = self.request.GET.copy()
        query.pop("page", None)
        query["export"] = "csv"
        return query.urlencode()

    def _export(self) -> HttpResponseBase:
        in_order = self.get_table().data.data
        table = self.table_class(data=in_order[:MOST_EXPORTED], **self.get_table_kwargs())
        hidden = [name for name, column in table.base_columns.items() if column.exclude_from_export]
        answer = StreamingHttpResponse(
            csv_lines(table.as_values(exclude_columns=hidden)), content_type="text/csv; charset=utf-8"
        )
        with override("en"):
            name = slugify(str(self.title))
        answer["Content-Disposition"] = f'attachment; filename="{name}.csv"'
        return answer
