"""The list of projects, the page of a project with its members, and forms that create, change and delete a project."""

from __future__ import annotations

from typing import Any, ClassVar

import django_filters
import django_tables2 as tables
from django import forms
from django.contrib import messages
from django.db.models import Model, QuerySet
from django.http import HttpRequest, HttpResponseBase
from django.shortcuts import get_object_or_404, redirect
from django.urls import path
from django.utils.translation import gettext_lazy as _l
from django.views.generic import TemplateView

from backendai.base.core.errors import UserError
from backendai.base.texts.messages import in_words
from backendai.base.texts.translation import gettext as _
from backendai.domain.accounts.models import Domain, Membership, Project, User
from backendai.domain.accounts.querysets import number_of
from backendai.domain.accounts.references import counted_uses
from backendai.domain.accounts.roles import Action, Rank, chooses_members, may_project, rank_of, rules_people
from backendai.domain.accounts.services import (
    add_member,
    change_project,
    create_project,
    delete_project,
    remove_member,
    set_member_role,
)
from backendai.domain.accounts.services.projects import GOES_WITH_PROJECT
from backendai.domain.compute.models import ComputeSession
from backendai.portal.web.admin.access import PanelPage
from backendai.portal.web.admin.editing import DeleteUnlessUsed, FormPage, show_error
from backendai.portal.web.admin.forms import EditForm
from backendai.portal.web.admin.listing import ListPage, NameColumn, NumberColumn, PanelFilter, PanelTable, YesNoColumn
from backendai.portal.web.admin.people.dotfiles import ProjectFiles
from backendai.portal.web.dashboard.gauges import gauges_of_holder

_MOST_MEMBERS = 500


class ProjectTable(PanelTable):
    """A table with one row for each project."""

    name = tables.LinkColumn("manage:project", args=[tables.A("pk")])
    domain = NameColumn(_l("Domain"))
    is_active = YesNoColumn(_l("Active"))
    member_count = NumberColumn(_l("Members"))
    policy = tables.Column(_l("Policy"), default=_l("no limits"))

    class Meta(PanelTable.Meta):
        model = Project
        order_by = "name"


class ProjectFilter(PanelFilter):
    """Filters projects by name, domain and state."""

    search_fields = ("name", "domain__name")
    search_hint = _l("Name")

    domain = django_filters.ModelChoiceFilter(
        queryset=lambda request: Domain.objects.visible_to(request.user), empty_label=_l("any")
    )

    class Meta:
        model = Project
        fields: ClassVar[list[str]] = ["domain", "is_active"]


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
    submit_label = _l("Save project")
    delete_label = _l("Delete project")
    list_address = "manage:projects"
    delete_address = "manage:project-delete"
    row_address = "manage:project"

    def get_queryset(self) -> QuerySet[Project]:
        """Return the projects that the user manages."""
        managed: QuerySet[Project] = Project.objects.managed_by(self.viewer)
        return Project.objects.filter(pk__in=managed.order_by().values("pk"))

    def may_change(self, row: Project) -> bool:
        return may_project(self.viewer, Action.CHANGE_PROJECT, row)

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
        return change_project(self.viewer, self.find(), form.values())


class ProjectDelete(DeleteUnlessUsed):
    """Deletes a project that was never used."""

    section = "projects"
    rule = staticmethod(rules_people)
    model = Project
    list_address = "manage:projects"
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

    def delete(self) -> None:
        delete_project(self.viewer, self.object)


class MemberForm(forms.Form):
    """A user of the project's domain, by e-mail address."""

    email = forms.CharField(label=_l("E-mail address"), max_length=254, widget=forms.EmailInput())
    role = forms.ChoiceField(choices=Membership.Role.choices, label=_l("Role in the project"))


class ProjectPage(PanelPage, TemplateView):
    """One project with its members, limits and usage, for people who choose its members."""

    section = "projects"
    rule = staticmethod(chooses_members)
    template_name = "web/panel/project.html"
    form: MemberForm | None = None

    def post(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponseBase:
        """Add or remove a member, or change a member's role."""
        project = self._project()
        try:
            done = self._act(project, request.POST.get("action", ""))
        except UserError as error:
            if self.form is None:
                messages.error(request, in_words(error.message))
                return redirect("manage:project", project.pk)
            if not self.form.errors:
                show_error(self.form, error)
            return self.render_to_response(self.get_context_data(), status=422)
        messages.success(request, done)
        return redirect("manage:project", project.pk)

    def page_context(self) -> dict[str, Any]:
        """Return the project and its members."""
        project, viewer = self._project(), self.viewer
        members = project.memberships.select_related("user").order_by("user__email")[:_MOST_MEMBERS]
        return {
            "title": project.name,
            "project": project,
            "members": members,
            "number": project.memberships.count(),
            "most": _MOST_MEMBERS,
            "roles": Membership.Role.choices,
            "form": self.form or MemberForm(),
            "gauges": gauges_of_holder(project),
            "may_files": rules_people(viewer) and may_project(viewer, Action.SET_DOTFILES, project),
            "may_change": may_project(viewer, Action.CHANGE_PROJECT, project),
            "sees_people": rules_people(viewer),
        }

    def _act(self, project: Project, action: str) -> str:
        actor = self.viewer
        if action == "add":
            self.form = MemberForm(self.request.POST)
            if not self.form.is_valid():
                raise UserError(_("Check the marked fields."))
            added = add_member(actor, project, self.form.cleaned_data["email"], role=self.form.cleaned_data["role"])
            return _("%(user)s is now a member of the project.") % {"user": added.user}
        members = User.objects.filter(memberships__project=project)
        user = members.filter(email=self.request.POST.get("member", "")[:254]).first()
        if user is None:
            raise UserError(_("They are no longer members of this project."))
        if action == "remove":
            remove_member(actor, project, user)
            return _("%(user)s is no longer a member of the project. Running sessions continue.") % {"user": user}
        role = set_member_role(actor, project, user, self.request.POST.get("role", "")).get_role_display()
        return _("%(user)s is now a %(role)s.") % {"user": user, "role": role}

    def _project(self) -> Project:
        rows = Project.objects.managed_by(self.viewer).select_related("domain", "policy")
        found: Project = get_object_or_404(rows, pk=self.kwargs["pk"])
        return found


class Projects(ListPage):
    """The list of projects whose members the user chooses."""

    section = "projects"
    title = _l("Projects")
    icon = "folder"
    guide = "people"
    lead = _l("people who share limits")
    rule = staticmethod(chooses_members)
    table_class = ProjectTable
    filterset_class = ProjectFilter
    create_label = _l("New project")
    more = (
        path("projects/new/", ProjectFormPage.as_view(), name="project-new"),
        path("projects/<uuid:pk>/", ProjectPage.as_view(), name="project"),
        path("projects/<uuid:pk>/change/", ProjectFormPage.as_view(), name="project-change"),
        path("projects/<uuid:pk>/delete/", ProjectDelete.as_view(), name="project-delete"),
        path("projects/<uuid:pk>/files/", ProjectFiles.as_view(), name="project-files"),
    )

    def get_queryset(self) -> QuerySet[Project]:
        """Return the projects with the number of their members."""
        managed: QuerySet[Project] = Project.objects.managed_by(self.viewer).select_related("domain", "policy")
        return managed.annotate(member_count=number_of(Membership.objects.all(), "project"))

    def get_context_data(self, **kwargs: Any) -> dict[str, Any]:
        """Return the context of the list; users who only choose members cannot create projects."""
        self.create_address = "manage:project-new" if rules_people(self.viewer) else ""
        return super().get_context_data(**kwargs)
