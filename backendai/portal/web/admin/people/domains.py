"""Pages of domains."""

from __future__ import annotations

from typing import Any, ClassVar

import django_tables2 as tables
from django.db.models import Model, QuerySet
from django.urls import path

from backendai.base.texts.translation import gettext_lazy as _l
from backendai.domain.accounts.models import Domain, Project, User
from backendai.domain.accounts.querysets import number_of
from backendai.domain.accounts.references import counted_uses
from backendai.domain.accounts.services import change_domain, create_domain, delete_domain
from backendai.portal.web.admin.editing import DeleteUnlessUsed
from backendai.portal.web.admin.forms import EditForm
from backendai.portal.web.admin.listing import NumberColumn, PanelTable, YesNoColumn
from backendai.portal.web.admin.objects import ObjectPages
from backendai.portal.web.admin.people.dotfiles import DomainFiles


class DomainTable(PanelTable):
    """A table with one row for each domain."""

    name = tables.LinkColumn("manage:domain", args=[tables.A("pk")])
    is_active = YesNoColumn(_l("Active"))
    people = NumberColumn(_l("People"))
    project_count = NumberColumn(_l("Projects"))
    policy = tables.Column(_l("Policy"), default=_l("no limits"))

    class Meta(PanelTable.Meta):
        model = Domain
        order_by = "name"


class DomainForm(EditForm):
    """A domain with its limits."""

    groups = ((_l("Limits"), ("policy", "share_weight")),)

    class Meta:
        model = Domain
        fields: ClassVar[list[str]] = ["name", "is_active", "policy", "share_weight"]


class Domains(ObjectPages):
    """Domains, for superadmins."""

    section = "domains"
    name = "domain"
    model = Domain
    title = _l("Domains")
    icon = "building"
    guide = "people"
    lead = _l("organisations with their own people and projects")
    table_class = DomainTable
    search_fields = ("name",)
    search_hint = _l("Name")
    filter_fields = ("is_active",)
    form_class = DomainForm
    form_template = "web/panel/domain.html"
    new_label = _l("New domain")
    save_label = _l("Save domain")
    saved_text = _l("Domain %(saved)s is saved.")
    delete_label = _l("Delete domain")
    delete_page = DeleteUnlessUsed
    filters: ClassVar[dict[Any, tuple[str, str]]] = {User: ("domain", "pk"), Project: ("domain", "pk")}
    more = (path("domains/<int:pk>/files/", DomainFiles.as_view(), name="domain-files"),)

    def rows(self) -> QuerySet[Domain]:
        """Return the domains with the number of their people and projects."""
        return Domain.objects.select_related("policy").annotate(
            people=number_of(User.objects.all(), "domain"), project_count=number_of(Project.objects.all(), "domain")
        )

    def save(self, form: EditForm) -> Any:
        """Save the domain by the services, with their checks and audit entries."""
        values = form.values()
        if self.object is None:
            limits = {name: values[name] for name in ("policy", "share_weight")}
            return create_domain(self.viewer, values["name"], **limits)
        return change_domain(self.viewer, self.find(), values)

    def counted(self) -> dict[type[Model], int]:
        """Return how many rows of each model, such as people and projects, belong to the domain."""
        return counted_uses(self.object)

    def deactivate(self) -> None:
        change_domain(self.viewer, self.object, {"is_active": False})

    def delete(self) -> None:
        delete_domain(self.viewer, self.object)
