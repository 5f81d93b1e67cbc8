"""The audit log."""

from __future__ import annotations

import json
from typing import Any, ClassVar

import django_filters
import django_tables2 as tables
from django.db.models import Q, QuerySet
from django.utils.html import format_html
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy as _l

from backendai.activity.models import AuditEntry
from backendai.activity.refusals import PREFIX
from backendai.activity.services import COMMAND_LINE
from backendai.texts.isolation import isolated
from backendai.web.panel.listing import DayFilter, ListPage, PanelFilter, PanelTable
from backendai.web.templatetags.portal import exact


class AuditTable(PanelTable):
    """A table with one row for each audit entry."""

    at = tables.Column(_l("When"))
    actor = tables.Column(_l("Who"), accessor="actor__email", empty_values=())
    action = tables.Column(_l("Action"))
    target_type = tables.Column(_l("Target"))
    target_id = tables.Column(_l("Target ID"))
    address = tables.Column(_l("Address"), orderable=False)
    request_id = tables.Column(_l("Request"), orderable=False)
    details = tables.Column(_l("Details"), orderable=False)

    class Meta(PanelTable.Meta):
        model = AuditEntry
        fields = ("at", "actor", "action", "target_type", "target_id", "address", "request_id", "details")
        order_by = "-at"

    def render_actor(self, value: Any, record: AuditEntry) -> str:
        """Return the user, or ``the command line`` or ``the platform``."""
        if value:
            return str(value)
        return _("the command line") if record.details.get("by") == COMMAND_LINE else _("the platform")

    def render_at(self, value: Any) -> str:
        return exact(value)

    def value_at(self, value: Any) -> str:
        return str(value.isoformat())

    def value_details(self, value: Any) -> str:
        """Return all details as JSON for files."""
        return json.dumps(value, ensure_ascii=False, sort_keys=True)

    def render_details(self, value: Any) -> str:
        """Return the details as JSON, folded if they are long."""
        text = json.dumps(_kept_apart(value), ensure_ascii=False, sort_keys=True)
        if len(text) <= 80:
            return format_html('<code class="audit-details">{}</code>', text if value else "")
        return format_html("<details><summary>{}…</summary><code>{}</code></details>", text[:60], text)


class AuditFilter(PanelFilter):
    """Filters audit entries by words, action, outcome and time."""

    search_fields = ("action", "target_id", "actor__email")
    search_hint = _l("Actor, action or ID")

    action = django_filters.CharFilter("action", "startswith", label=_l("Action"), max_length=64)
    actor = django_filters.CharFilter("actor__email", "iexact", label=_l("By"), max_length=254)
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
        fields: ClassVar[list[str]] = ["target_type"]

    def by_outcome(self, rows: QuerySet[Any], name: str, value: str) -> QuerySet[Any]:
        """Return the refused actions, including failed sign-ins, or the others."""
        refused = Q(action__startswith=PREFIX) | Q(action="user.sign-in-failed")
        return rows.filter(refused if value == "yes" else ~refused)


class AuditList(ListPage):
    """The audit log, for superadmins."""

    section = "audit"
    title = _l("Audit log")
    table_class = AuditTable
    filterset_class = AuditFilter
    counts_rows = False
    empty_text = _l("Every change that people make is recorded here.")

    def get_queryset(self) -> QuerySet[AuditEntry]:
        """Return all entries."""
        return AuditEntry.objects.select_related("actor")


def _kept_apart(value: Any) -> Any:
    """Return details whose texts do not change the writing direction of the text around them."""
    if isinstance(value, dict):
        return {name: _kept_apart(each) for name, each in value.items()}
    if isinstance(value, list):
        return [_kept_apart(each) for each in value]
    return isolated(value) if isinstance(value, str) else value
