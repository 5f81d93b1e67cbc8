"""Pages of invitations to projects."""

from __future__ import annotations

from datetime import timedelta
from typing import Any, ClassVar

import django_filters
import django_tables2 as tables
from django import forms
from django.db.models import QuerySet
from django.http import HttpResponse
from django.urls import path, reverse
from django.utils import timezone
from django.utils.html import format_html

from backendai.base.texts.messages import in_words
from backendai.base.texts.translation import gettext as _
from backendai.base.texts.translation import gettext_lazy as _l
from backendai.domain.accounts.invitation_links import link_of, mail_link
from backendai.domain.accounts.models import Invitation, Project, User
from backendai.domain.accounts.roles import chooses_members, rules_people
from backendai.domain.accounts.services import Invitee, invite, revoke_invitation
from backendai.portal.web.admin.editing import ConfirmPage, FormPage
from backendai.portal.web.admin.forms import EditForm
from backendai.portal.web.admin.listing import ListPage, NameColumn, PanelFilter, PanelTable, TimeColumn
from backendai.portal.web.templatetags.portal import exact


class InvitationTable(PanelTable):
    """A table with one row for each invitation."""

    email = tables.Column(_l("For"))
    project = NameColumn(_l("Project"))
    role = tables.Column(_l("Role in the project"))
    state = tables.Column(_l("State"), empty_values=(), orderable=False)
    invited_by = tables.Column(_l("By"), default="–")
    created_at = TimeColumn(_l("Sent"))
    expires_at = TimeColumn(_l("Valid until"), words=exact)
    revoke = tables.Column(_l("Revoke"), accessor="pk", orderable=False, exclude_from_export=True)

    class Meta(PanelTable.Meta):
        model = Invitation
        order_by = "-created_at"

    def render_state(self, record: Invitation) -> str:
        return in_words(record.state(timezone.now()).label)

    def render_revoke(self, record: Invitation) -> str:
        """Return the link that revokes an open invitation; empty for others."""
        if record.state(timezone.now()) != Invitation.State.OPEN:
            return ""
        return format_html('<a href="{}">{}</a>', reverse("manage:invitation-revoke", args=[record.pk]), _("Revoke"))


class InvitationFilter(PanelFilter):
    """Filters invitations by address, project and state."""

    search_fields = ("email", "full_name", "project__name")
    search_hint = _l("Address, name or project")

    state = django_filters.ChoiceFilter(
        choices=Invitation.State.choices, method="in_state", label=_l("State"), empty_label=_l("any")
    )

    class Meta:
        model = Invitation
        fields: ClassVar[list[str]] = []

    def in_state(self, rows: QuerySet[Any], name: str, value: str) -> QuerySet[Any]:
        """Return the invitations in this state."""
        return rows & Invitation.objects.in_state(value, timezone.now())


class InvitationForm(EditForm):
    """The person to invite, the project and the role."""

    days = forms.IntegerField(label=_l("Valid for days"), initial=7, min_value=1, max_value=90)

    class Meta:
        model = Invitation
        fields: ClassVar[list[str]] = ["email", "full_name", "project", "role", "policy"]
        labels: ClassVar[dict[str, Any]] = {
            "email": _l("E-mail address"),
            "full_name": _l("Name"),
            "role": _l("Role in the project"),
        }
        help_texts: ClassVar[dict[str, Any]] = {
            "full_name": _l("They can change it later."),
            "role": _l("A project admin chooses who else belongs to the project."),
            "policy": _l("Leave empty to use the default for new users."),
        }

    def __init__(self, *args: Any, actor: User, project: str = "", **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        projects = Project.objects.managed_by(actor).filter(is_active=True, domain__is_active=True)
        field: Any = self.fields["project"]
        field.queryset = projects.select_related("domain").order_by("domain__name", "name")
        field.label_from_instance = lambda one: f"{one.domain} / {one}"
        only = list(field.queryset[:2])
        if project:
            self.initial["project"] = project
        elif len(only) == 1:
            self.initial["project"] = only[0].pk
        if not rules_people(actor):
            del self.fields["policy"]


class InvitationPage(FormPage):
    """Invites a person, and shows the link once."""

    section = "invitations"
    title = _l("Invite")
    lead = _l("New people create an account with the link; people with an account join with it.")
    rule = staticmethod(chooses_members)
    model = Invitation
    form_class = InvitationForm
    is_atomic = False
    list_address = "manage:invitations"
    submit_label = _l("Invite person")

    def make_form(self, data: Any = None) -> EditForm:
        """Return the form with the fields that this user may fill."""
        return InvitationForm(data, actor=self.viewer, project=self.request.GET.get("project", "")[:36])

    def save(self, form: EditForm) -> tuple[Invitation, str]:
        """Create the invitation; return it with the secret of its link."""
        said = form.cleaned_data
        invitee = Invitee(said["email"], said["full_name"], said["role"], said.get("policy"))
        valid_for = timedelta(days=said["days"])
        return invite(self.viewer, said["project"], invitee, now=timezone.now(), valid_for=valid_for)

    def answer(self, form: EditForm, saved: tuple[Invitation, str]) -> HttpResponse:
        """Show the link, and send it by mail."""
        row, text = saved
        link = link_of(text, self.request.build_absolute_uri("/"))
        shown = {"invitation": row, "link": link, "mailed": mail_link(row, text)}
        return self.show_once(form, "web/panel/invitation.html", **shown)


class InvitationRevoke(ConfirmPage):
    """Revokes an invitation."""

    section = "invitations"
    title = _l("Revoke")
    submit_label = _l("Revoke invitation")
    rule = staticmethod(chooses_members)
    model = Invitation
    list_address = "manage:invitations"

    def get_queryset(self) -> QuerySet[Invitation]:
        """Return the visible invitations."""
        rows: QuerySet[Invitation] = Invitation.objects.visible_to(self.viewer)
        return rows.select_related("project")

    def question(self) -> str:
        return _("Revoke the invitation of %(email)s to %(project)s?") % {
            "email": self.object.email,
            "project": self.object.project,
        }

    def consequences(self) -> list[str]:
        return [_("The link stops working. People who already accepted stay.")]

    def act(self) -> str:
        revoke_invitation(self.viewer, self.object, now=timezone.now())
        return _("The invitation of %(email)s is revoked.") % {"email": self.object.email}


class Invitations(ListPage):
    """The list of invitations to projects whose members the user chooses."""

    section = "invitations"
    title = _l("Invitations")
    icon = "mail"
    guide = "people"
    lead = _l("links by which people join a project")
    rule = staticmethod(chooses_members)
    table_class = InvitationTable
    filterset_class = InvitationFilter
    create_address = "manage:invitation-new"
    create_label = _l("Invite")
    empty_title = _l("Nobody has been invited yet")
    empty_text = _l("An invitation is a link to create an account and join a project.")
    more = (
        path("invitations/new/", InvitationPage.as_view(), name="invitation-new"),
        path("invitations/<uuid:pk>/revoke/", InvitationRevoke.as_view(), name="invitation-revoke"),
    )

    def get_queryset(self) -> QuerySet[Invitation]:
        """Return the visible invitations."""
        rows: QuerySet[Invitation] = Invitation.objects.visible_to(self.viewer)
        return rows.select_related("project", "invited_by")
