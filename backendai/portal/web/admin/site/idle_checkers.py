"""Pages of idle checkers."""

from __future__ import annotations

from typing import Any, ClassVar

import django_tables2 as tables
from django.db.models import Count, Q, QuerySet

from backendai.base.texts.translation import gettext as _
from backendai.base.texts.translation import gettext_lazy as _l
from backendai.domain.accounts.policies.duration_field import short_duration
from backendai.domain.cluster.idle.checkers import delete_checker, write_checker
from backendai.domain.cluster.models import IdleChecker
from backendai.portal.web.admin.forms import EditForm
from backendai.portal.web.admin.listing import PanelFilter, PanelTable
from backendai.portal.web.admin.objects import ObjectPages
from backendai.portal.web.admin.site.idle_form import CheckerForm


class CheckerTable(PanelTable):
    """A table with one row for each idle checker."""

    name = tables.LinkColumn("manage:idle-checker", args=[tables.A("pk")])
    kind = tables.Column(_l("Kind"))
    limit = tables.Column(_l("After"), attrs={"td": {"class": "number"}})
    warning = tables.Column(_l("Warning period"), attrs={"td": {"class": "number"}})
    places = tables.Column(_l("Scope"), accessor="pk", orderable=False)
    warned = tables.Column(_l("Warned now"), attrs={"td": {"class": "number"}})
    is_active = tables.BooleanColumn(verbose_name=_l("Active"), yesno=(_l("yes"), _l("no")))

    class Meta(PanelTable.Meta):
        model = IdleChecker
        fields = ("name", "kind", "limit", "warning", "places", "warned", "is_active")
        order_by = ("kind", "name")

    def render_limit(self, value: Any) -> str:
        return short_duration(value)

    def render_warning(self, value: Any) -> str:
        return short_duration(value)

    def render_places(self, record: IdleChecker) -> str:
        """Return as text where the idle checker applies."""
        rows = [row for row in record.bindings.all() if row.applies]
        names = sorted(str(row.resource_group or row.project) for row in rows if row.resource_group or row.project)
        site = [_("the whole site")] if len(names) < len(rows) else []
        return ", ".join([*site, *names]) or _("nowhere yet")


class CheckerFilter(PanelFilter):
    """Filters idle checkers by name and kind."""

    search_fields = ("name", "description")
    search_hint = _l("Name or description")

    class Meta:
        model = IdleChecker
        fields: ClassVar[list[str]] = ["kind", "is_active"]


class IdleCheckers(ObjectPages):
    """Idle checkers, for superadmins."""

    section = "idle-checkers"
    name = "idle-checker"
    audit_name = "idle-checker"
    model = IdleChecker
    title = _l("Idle checkers")
    icon = "clock"
    guide = "idle-checkers"
    lead = _l("owners of unused sessions are warned, then these are stopped or terminated")
    table_class = CheckerTable
    filterset_class = CheckerFilter
    empty_title = _l("No session is ended for being idle")
    empty_text = _l("An idle checker defines when a session is idle, and how long before the end its owner is warned.")
    form_class = CheckerForm
    form_lead = _l("Changes apply within 15 seconds. Existing warnings are reissued under the new rule.")
    new_label = _l("New idle checker")
    save_label = _l("Save idle checker")
    saved_text = _l("Idle checker %(saved)s is saved.")
    delete_label = _l("Delete idle checker")

    def rows(self) -> QuerySet[IdleChecker]:
        """Return the idle checkers with their places, and the number of sessions that each warns now."""
        stands = Q(warnings__warned_at__isnull=False, warnings__collected_at=None, warnings__session__status="RUNNING")
        rows = IdleChecker.objects.annotate(warned=Count("warnings", filter=stands))
        return rows.prefetch_related("bindings__resource_group", "bindings__project")

    def save(self, form: EditForm) -> Any:
        """Save the idle checker and its places by the service."""
        assert isinstance(form, CheckerForm)
        values = {name: form.cleaned_data[name] for name in CheckerForm.Meta.fields}
        return write_checker(self.viewer.pk, self.find() or IdleChecker(), values, form.places())

    def consequences(self) -> list[str]:
        return [_("Its warnings are withdrawn; sessions that it ended stay ended, with the reason.")]

    def delete(self) -> None:
        """Delete the idle checker, and withdraw its warnings."""
        delete_checker(self.viewer.pk, self.object)
