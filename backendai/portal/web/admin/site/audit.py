"""The audit log."""

from __future__ import annotations

import json
from contextlib import suppress
from typing import Any, ClassVar

import django_filters
import django_tables2 as tables
from django import forms
from django.db.models import QuerySet
from django.utils.html import format_html, format_html_join
from django.utils.http import urlencode
from django.utils.safestring import SafeString
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy as _l

from backendai.base.core.errors import UserError
from backendai.base.texts.isolation import isolated
from backendai.domain.activity.models import AuditEntry
from backendai.domain.activity.refusals import IS_REFUSED
from backendai.domain.activity.services import COMMAND_LINE
from backendai.portal.web.admin.listing import DayFilter, ListPage, PanelFilter, PanelTable, TimeColumn
from backendai.portal.web.templatetags.portal import amounts, exact

_SHORT, _SHORT_ID = 80, 12  # characters of details that are not folded, and of an ID that is not cut


class AuditTable(PanelTable):
    """A table with one row for each audit entry."""

    at = TimeColumn(_l("When"), words=exact, attrs={"td": {"class": "audit-when"}})
    actor = tables.Column(_l("Who"), accessor="actor__email", empty_values=(), attrs={"td": {"class": "audit-who"}})
    action = tables.Column(_l("Action"), attrs={"td": {"class": "word"}})
    target_type = tables.Column(_l("Target"), attrs={"td": {"class": "word"}})
    target_id = tables.Column(_l("Target ID"), attrs={"td": {"class": "word"}})
    address = tables.Column(_l("Address"), orderable=False, attrs={"td": {"class": "audit-address"}})
    request_id = tables.Column(_l("Request"), orderable=False, attrs={"td": {"class": "word"}})
    details = tables.Column(_l("Details"), orderable=False)

    class Meta(PanelTable.Meta):
        model = AuditEntry
        order_by = "-at"

    def render_actor(self, value: Any, record: AuditEntry) -> str:
        """Return the user, or ``the command line`` or ``the platform``."""
        if value:
            return str(value)
        return _("the command line") if record.details.get("by") == COMMAND_LINE else _("the platform")

    def value_details(self, value: Any) -> str:
        """Return all details as JSON for files."""
        return json.dumps(value, ensure_ascii=False, sort_keys=True)

    def render_target_id(self, value: str, record: AuditEntry) -> str:
        """Return a link to all entries about the target: its name, or its ID, cut if it is long."""
        shown = value if len(value) <= _SHORT_ID else f"{value[:8]}…"
        name = record.details.get("name")
        return _all_entries("target_id", value, isolated(name) if name and isinstance(name, str) else shown)

    def render_request_id(self, value: str) -> str:
        """Return a link to all entries of the request."""
        return _all_entries("request_id", value, value)

    def render_details(self, value: dict[str, Any]) -> str:
        """Return the details as names with values, folded if they are long."""
        texts = [(name.replace("_", " "), _told(name, each)) for name, each in sorted(value.items())]
        pairs = format_html_join("", '<span class="audit-detail"><b>{}</b> {}</span> ', texts)
        if sum(len(name) + len(text) + 1 for name, text in texts) <= _SHORT:
            return pairs or "–"
        first = " ".join(f"{name} {text}" for name, text in texts)[: _SHORT - 20]
        return format_html("<details><summary><bdi>{}…</bdi></summary>{}</details>", first, pairs)


def _example(text: str) -> forms.TextInput:
    return forms.TextInput({"placeholder": text})


class AuditFilter(PanelFilter):
    """Filters audit entries by words, action, outcome and time."""

    search_fields = ("action", "target_id", "actor__email")
    search_hint = _l("Actor, action or ID")

    rare_fields = ("target_id", "address", "request_id")

    target_type = django_filters.CharFilter(
        "target_type", label=_l("Target type"), max_length=32, widget=_example("session")
    )
    action = django_filters.CharFilter(
        "action", "startswith", label=_l("Action"), max_length=64, widget=_example("session.create")
    )
    actor = django_filters.CharFilter(
        "actor__email", "iexact", label=_l("By"), max_length=254, widget=_example("ada@example.com")
    )
    target_id = django_filters.CharFilter("target_id", label=_l("Target ID"), max_length=64)
    address = django_filters.CharFilter("address", label=_l("Address"), max_length=45)
    request_id = django_filters.CharFilter("request_id", label=_l("Request"), max_length=12)
    refused = django_filters.ChoiceFilter(
        label=_l("Outcome"),
        method="by_outcome",
        empty_label=_l("any"),
        choices=[("yes", _l("refused")), ("no", _l("done"))],
    )
    since = DayFilter("at", "date__gte", label=_l("From"))
    until = DayFilter("at", "date__lte", label=_l("To"))

    class Meta:
        model = AuditEntry
        fields: ClassVar[list[str]] = []

    def by_outcome(self, rows: QuerySet[Any], name: str, value: str) -> QuerySet[Any]:
        """Return the refused actions, including failed sign-ins, or the others."""
        return rows.filter(IS_REFUSED if value == "yes" else ~IS_REFUSED)


class Audit(ListPage):
    """The audit log, for superadmins."""

    section = "audit"
    title = _l("Audit log")
    icon = "list-details"
    guide = "statistics-and-the-audit-log"
    table_class = AuditTable
    filterset_class = AuditFilter
    counts_rows = False
    empty_text = _l("Every change that people make is recorded here.")

    def get_queryset(self) -> QuerySet[AuditEntry]:
        """Return all entries."""
        return AuditEntry.objects.select_related("actor")


def _all_entries(field: str, value: str, shown: str) -> SafeString:
    return format_html('<a href="?{}" title="{}"><code>{}</code></a>', urlencode({field: value}), value, shown)


def _told(name: str, value: Any) -> str:
    """Return a detail as text. Slots are shown as amounts if they still can be parsed."""
    if name == "slots" and isinstance(value, dict):
        with suppress(UserError):
            return amounts(value)
    return _plain(value)


def _plain(value: Any) -> str:
    """Return a detail as text that does not change the writing direction of the text around it."""
    if isinstance(value, str):
        return isolated(value) if value else "–"
    if isinstance(value, list):
        return ", ".join(_plain(each) for each in value) or "–"
    if isinstance(value, dict):
        return ", ".join(f"{name} {_plain(each)}" for name, each in value.items()) or "–"
    if isinstance(value, bool):
        return _("yes") if value else _("no")
    return "–" if value is None else str(value)
