"""The list of projects, and the page of a project with its members."""

from __future__ import annotations

from typing import Any, ClassVar

import django_filters
import django_tables2 as tables
from django import forms
from django.contrib import messages
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponseBase
from django.shortcuts import get_object_or_404, redirect
from django.utils.translation import gettext_lazy as _l
from django.views.generic import TemplateView

from backendai.base.core.errors import UserError
from backendai.base.texts.messages import in_words
from backendai.base.texts.translation import gettext as _
from backendai.domain.accounts.models import Domain, Membership, Project, User
from backendai.domain.accounts.querysets import number_of
from backendai.domain.accounts.roles import Action, chooses_members, may_project, rules_people
from backendai.domain.accounts.services import add_member, remove_member, set_member_role
from backendai.portal.web.admin.access import PanelPage
from backendai.portal.web.admin.editing import show_error
from backendai.portal.web.admin.forms import name_text
from backendai.portal.web.admin.holdings import gauges_of
from backendai.portal.web.admin.listing import ListPage, PanelFilter, PanelTable

_MOST_MEMBERS = 500


class ProjectTable(PanelTable):
    """A table with one row for each project."""

    name = tables.LinkColumn("manage:project", args=[tables.A("pk")])
    domain = tables.Column(_l("Domain"))
    is_active = tables.BooleanColumn(verbose_name=_l("Active"), yesno=(_l("yes"), _l("no")))
    member_count = tables.Column(_l("Members"), attrs={"td": {"class": "number"}})
    policy = tables.Column(_l("Policy"), default=_l("no limits"))

    class Meta(PanelTable.Meta):
        model = Project
        fields = ("name", "domain", "is_active", "member_count", "policy")
        order_by = "name"

    def render_domain(self, value: Any) -> str:
        """Return the domain's name, with its own writing direction."""
        return name_text(str(value))

    def value_domain(self, value: Any) -> str:
        return str(value)


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


class ProjectList(ListPage):
    """The list of projects whose members the user chooses."""

    section = "projects"
    title = _l("Projects")
    lead = _l("people who share limits")
    rule = staticmethod(chooses_members)
    table_class = ProjectTable
    filterset_class = ProjectFilter
    create_label = _l("New project")

    def get_queryset(self) -> QuerySet[Project]:
        """Return the projects with the number of their members."""
        managed: QuerySet[Project] = Project.objects.managed_by(self.viewer).select_related("domain", "policy")
        return managed.annotate(member_count=number_of(Membership.objects.all(), "project"))

    def get_context_data(self, **kwargs: Any) -> dict[str, Any]:
        """Return the context of the list; users who only choose members cannot create projects."""
        assert isinstance(self.request.user, User)
        self.create_address = "manage:project-new" if rules_people(self.request.user) else ""
        return super().get_context_data(**kwargs)


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

    def get_context_data(self, **kwargs: Any) -> dict[str, Any]:
        """Return the context with the project and its members."""
        project, viewer = self._project(), self.request.user
        assert isinstance(viewer, User)
        members = project.memberships.select_related("user").order_by("user__email")[:_MOST_MEMBERS]
        shown = {
            "title": project.name,
            "project": project,
            "members": members,
            "number": project.memberships.count(),
            "most": _MOST_MEMBERS,
            "roles": Membership.Role.choices,
            "form": self.form or MemberForm(),
            "gauges": gauges_of(project),
            "may_files": rules_people(viewer) and may_project(viewer, Action.SET_DOTFILES, project),
            "may_change": may_project(viewer, Action.CHANGE_PROJECT, project),
            "sees_people": rules_people(viewer),
        }
        return super().get_context_data(**(shown | kwargs))

    def _act(self, project: Project, action: str) -> str:
        actor = self.request.user
        assert isinstance(actor, User)
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
