"""Pages of domains."""

from __future__ import annotations

from typing import Any, ClassVar

import django_tables2 as tables
from django.db.models import Model, QuerySet
from django.utils.translation import gettext_lazy as _l

from backendai.base.texts.translation import gettext as _
from backendai.domain.accounts.models import Domain, Project, User
from backendai.domain.accounts.querysets import number_of
from backendai.domain.accounts.references import counted_uses
from backendai.domain.accounts.services import change_domain, create_domain, delete_domain
from backendai.portal.web.admin.deleting import DeleteUnlessUsed
from backendai.portal.web.admin.editing import FormPage
from backendai.portal.web.admin.forms import EditForm
from backendai.portal.web.admin.listing import ListPage, PanelFilter, PanelTable


class DomainTable(PanelTable):
    """A table with one row for each domain."""

    name = tables.LinkColumn("manage:domain", args=[tables.A("pk")])
    is_active = tables.BooleanColumn(verbose_name=_l("Active"), yesno=(_l("yes"), _l("no")))
    people = tables.Column(_l("People"), attrs={"td": {"class": "number"}})
    project_count = tables.Column(_l("Projects"), attrs={"td": {"class": "number"}})
    policy = tables.Column(_l("Policy"), default=_l("no limits"))

    class Meta(PanelTable.Meta):
        model = Domain
        fields = ("name", "is_active", "people", "project_count", "policy")
        order_by = "name"


class DomainFilter(PanelFilter):
    """Filters domains by name and state."""

    search_fields = ("name",)
    search_hint = _l("Name")

    class Meta:
        model = Domain
        fields: ClassVar[list[str]] = ["is_active"]


class DomainForm(EditForm):
    """A domain with its limits."""

    groups = ((_l("Limits"), ("policy", "share_weight")),)

    class Meta:
        model = Domain
        fields: ClassVar[list[str]] = ["name", "is_active", "policy", "share_weight"]


class DomainList(ListPage):
    """The list of domains, for superadmins."""

    section = "domains"
    title = _l("Domains")
    lead = _l("organisations with their own people and projects")
    table_class = DomainTable
    filterset_class = DomainFilter
    create_address = "manage:domain-new"
    create_label = _l("New domain")

    def get_queryset(self) -> QuerySet[Domain]:
        """Return the domains with the number of their people and projects."""
        return Domain.objects.select_related("policy").annotate(
            people=number_of(User.objects.all(), "domain"), project_count=number_of(Project.objects.all(), "domain")
        )


class DomainPage(FormPage):
    """The form of a new or existing domain."""

    section = "domains"
    title = _l("New domain")
    template_name = "web/panel/domain.html"
    model = Domain
    form_class = DomainForm
    audit_name = "domain"
    submit_label = _l("Save domain")
    delete_label = _l("Delete domain")
    list_address = "manage:domains"
    delete_address = "manage:domain-delete"

    def save(self, form: EditForm) -> Any:
        """Save the domain by the services, with their checks and audit entries."""
        said = form.cleaned_data
        if self.object is None:
            wishes = {name: said[name] for name in ("policy", "share_weight")}
            return create_domain(self.viewer, said["name"], **wishes)
        wishes = {name: said[name] for name in DomainForm.Meta.fields}
        return change_domain(self.viewer, Domain.objects.get(pk=self.object.pk), wishes)

    def success_text(self, saved: Any) -> str:
        return _("Domain %(saved)s is saved.") % {"saved": saved}


class DomainDelete(DeleteUnlessUsed):
    """Deletes a domain without people and projects."""

    section = "domains"
    model = Domain
    list_address = "manage:domains"
    audit_name = "domain"
    submit_label = _l("Delete domain")
    filters: ClassVar[dict[Any, tuple[str, str]]] = {User: ("domain", "pk"), Project: ("domain", "pk")}

    def counted(self) -> dict[type[Model], int]:
        """Return how many rows of each model, such as people and projects, belong to the domain."""
        return counted_uses(self.object)

    def deactivate(self) -> None:
        change_domain(self.viewer, self.object, {"is_active": False})

    def act(self) -> str:
        name = str(self.object)
        delete_domain(self.viewer, self.object)
        return _("%(name)s is deleted.") % {"name": name}
