"""Finds the texts that pages take from models: names of fields in forms, filters and tables."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from django.db.models import Field
from django.forms.utils import pretty_name
from django.urls import get_resolver
from django.utils.functional import Promise
from django.utils.text import capfirst

from backendai.ops.tools.texts.catalogue import Entry, Key
from backendai.portal.web.admin.forms import EditForm
from backendai.portal.web.admin.listing import PanelFilter, PanelTable

# Words that rooms below put together, or that come from the database as they were at the beginning.
_MORE = (
    "A space",
    "Memory",
    "GPU",
    "hours",
    "GiB-hours",
    "User",
    "Project",
    "Domain",
    "Resource group",
    "user",
    "users",
    "nobody",
    "key pair",
    "key pairs",
    "project",
    "projects",
    "domain",
    "domains",
    "invitation",
    "invitations",
)


def labels_of_pages() -> list[Entry]:
    """Return the names that forms, filters and tables take from models and fields."""
    len(get_resolver().url_patterns)  # loads every page
    names = sorted({name for name in (*_names(), *_MORE) if name and not isinstance(name, Promise)})
    return [Entry(Key(name), files=("backendai/portal/web/panel",)) for name in names]


def _names() -> Iterator[str]:
    for form in _all_below(EditForm):
        for name, field in form.base_fields.items():
            if name != "version":
                yield field.label if field.label is not None else pretty_name(name)
    for filters in _all_below(PanelFilter):
        for name, one in filters.base_filters.items():
            yield one.extra.get("label") or one.label or pretty_name(name)
    for table in _all_below(PanelTable):
        for name, column in table.base_columns.items():
            yield column.verbose_name if column.verbose_name is not None else _of_model(table, name)


def _of_model(table: Any, name: str) -> str:
    found: Any = next((one for one in table._meta.model._meta.get_fields() if one.name == name), None)
    return str(capfirst(found.verbose_name)) if isinstance(found, Field) else pretty_name(name)


def _all_below(kind: Any) -> Iterator[Any]:
    for one in kind.__subclasses__():
        yield one
        yield from _all_below(one)
