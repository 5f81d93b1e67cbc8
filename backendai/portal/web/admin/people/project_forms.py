"""Forms that create, change and delete a project."""

from __future__ import annotations

from typing import Any, ClassVar

from django.db.models import Model, QuerySet
from django.http import Http404
from django.urls import reverse
from django.utils.translation import gettext_lazy as _l

from backendai.base.core.errors import UserError
from backendai.base.texts.translation import gettext as _
from backendai.domain.accounts.models import Project, User
from backendai.domain.accounts.references import counted_uses
from backendai.domain.accounts.roles import Action, Rank, may_project, rank_of, rules_people
from backendai.domain.accounts.services import change_project, create_project, delete_project
from backendai.domain.accounts.services.projects import GOES_WITH_PROJECT
from backendai.domain.compute.models import ComputeSession
from backendai.portal.web.admin.deleting import DeleteUnlessUsed
from backendai.portal.web.admin.editing import FormPage
from backendai.portal.web.admin.forms import EditForm


class ProjectForm(EditForm):
    """The form of a project, without the fields that the user may not set."""

    groups = ((_l("Limits"), ("policy", "share_weight")),)

    class Meta:
        model = Project
        fields: ClassVar[list[str]] = ["name", "domain", "is_active", "policy", "share_weight"]
        help_texts: ClassVar[dict[str, Any]] = {
            "is_active": _l("If off, nothing new starts in it; running sessions continue."),
            "policy": _l("Empty: no limits of its own; those of the domain still apply."),
        }

    def __init__(self, *args: Any, actor: User, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        rules_all = rank_of(actor) == Rank.SUPERADMIN
        left_out = {"domain"} if self.instance.pk and not self.instance._state.adding else {"is_active", "share_weight"}
        left_out |= set() if rules_all else {"domain", "share_weight"}
        for name in left_out:
            self.fields.pop(name, None)
        if "domain" in self.fields:
            self.initial.setdefault("domain", actor.domain_id)


class ProjectFormPage(FormPage):
    """The form of a new or existing project."""

    section = "projects"
    title = _l("New project")
    rule = staticmethod(rules_people)
    model = Project
    form_class = ProjectForm
    audit_name = "project"
    submit_label = _l("Save project")
    delete_label = _l("Delete project")
    list_address = "manage:projects"
    delete_address = "manage:project-delete"

    def get_queryset(self) -> QuerySet[Project]:
        """Return the projects that the user manages."""
        managed: QuerySet[Project] = Project.objects.managed_by(self.viewer)
        return Project.objects.filter(pk__in=managed.order_by().values("pk"))

    def find(self, *, for_update: bool = False) -> Any:
        """Return the project; 404 unless the user may change it."""
        found = super().find(for_update=for_update)
        if found is not None and not may_project(self.viewer, Action.CHANGE_PROJECT, found):
            raise Http404
        return found

    def make_form(self, data: Any = None) -> EditForm:
        """Return the form with the fields that this user may fill."""
        return ProjectForm(data, instance=self.object, actor=self.viewer)

    def save(self, form: EditForm) -> Any:
        """Save the project by the services, with their checks and audit entries."""
        said = form.cleaned_data
        if self.object is None:
            domain = said.get("domain") or self.viewer.domain
            if domain is None:
                raise UserError(_("A project belongs to a domain."), code="no-domain")
            return create_project(self.viewer, domain, said["name"], policy=said["policy"])
        wishes = {name: said[name] for name in form.fields if name != "version"}
        return change_project(self.viewer, Project.objects.get(pk=self.object.pk), wishes)

    def success_url(self, saved: Any) -> str:
        """Return the address of the project's page."""
        return reverse("manage:project", args=[saved.pk])


class ProjectDelete(DeleteUnlessUsed):
    """Deletes a project that was never used."""

    section = "projects"
    rule = staticmethod(rules_people)
    model = Project
    list_address = "manage:projects"
    audit_name = "project"
    submit_label = _l("Delete project")
    filters: ClassVar[dict[Any, tuple[str, str]]] = {ComputeSession: ("project", "name")}

    def counted(self) -> dict[type[Model], int]:
        """Return how many rows of each model, such as sessions, use the project."""
        return counted_uses(self.object, leaving_out=GOES_WITH_PROJECT)

    def deactivate(self) -> None:
        change_project(self.viewer, self.object, {"is_active": False})

    def get_queryset(self) -> QuerySet[Project]:
        """Return the projects that the user manages."""
        managed: QuerySet[Project] = Project.objects.managed_by(self.viewer)
        return managed

    def consequences(self) -> list[str]:
        return [_("Its memberships and open invitations are deleted; the people stay.")]

    def act(self) -> str:
        name = str(self.object)
        delete_project(self.viewer, self.object)
        return _("%(name)s is deleted.") % {"name": name}
