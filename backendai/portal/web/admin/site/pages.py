"""Pages of the site's settings and announcements."""

from __future__ import annotations

from typing import Any, ClassVar

import django_tables2 as tables
from django import forms
from django.contrib import messages
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse, HttpResponseBase
from django.shortcuts import redirect
from django.utils import timezone
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy as _l
from django.views.generic import TemplateView

from backendai.base.core.errors import UserError
from backendai.domain.accounts.models import User
from backendai.domain.accounts.policies.amounts_field import AmountsField
from backendai.domain.cluster.groups.session_network import Authority, authorities_of
from backendai.domain.cluster.models import Announcement
from backendai.domain.cluster.site import change_site, stored_settings
from backendai.portal.web.admin.access import PanelPage
from backendai.portal.web.admin.editing import DeletePage, FormPage, show_error
from backendai.portal.web.admin.forms import EditForm, digest_of, refuse_unseen
from backendai.portal.web.admin.listing import ListPage, PanelFilter, PanelTable
from backendai.portal.web.admin.site.session_network_form import SessionNetworkFields
from backendai.portal.web.templatetags.portal import exact


class SettingsForm(SessionNetworkFields):
    """The form of all settings of the site."""

    custom_allocation = forms.BooleanField(
        required=False,
        label=_l("Allow custom amounts"),
        help_text=_l("If off, the launch page offers only presets. The API is not affected."),
    )
    agent_select = forms.BooleanField(
        required=False,
        label=_l("Allow choosing the agent"),
        help_text=_l("The launch page lists the agents of each group by name."),
    )
    manual_image = forms.BooleanField(
        required=False,
        label=_l("Allow typing an image name"),
        help_text=_l("Shows an image-name field on the launch page. Users can only enter images they have access to."),
    )
    group_resources_visible = forms.BooleanField(
        required=False,
        label=_l("Show free resources to users"),
        help_text=_l("If off, only superadmins see the bars beside the list of sessions."),
    )
    public_apps = forms.BooleanField(
        required=False,
        label=_l("Allow public apps"),
        help_text=_l(
            "Users can make an app public for a limited time: anyone with the link uses it without signing in."
        ),
    )
    container_caps = AmountsField(
        label=_l("Maximum per kernel"),
        help_text=_l("Applies to everyone, in the portal and the API, e.g. cpu=32, mem=256g. Empty: no limit."),
    )
    version = forms.CharField(required=False, widget=forms.HiddenInput)

    def __init__(self, data: Any = None) -> None:
        self._stored = stored_settings()
        self._version = digest_of(self._stored)
        super().__init__(data, initial={**self._stored, "version": self._version})

    @property
    def authorities(self) -> list[Authority]:
        """The stored certificate authorities."""
        return authorities_of(self._stored["session_authorities"])

    def clean(self) -> dict[str, Any]:
        """Validate the form. Adds an error if the settings were changed after the form was shown."""
        cleaned: dict[str, Any] = super().clean() or self.cleaned_data
        if cleaned.pop("version", "") != self._version:
            refuse_unseen(self, self._version, self._stored)
        return cleaned


class SettingsPage(PanelPage, TemplateView):
    """The form of the site's settings."""

    section = "settings"
    title = _l("Settings")
    template_name = "web/panel/settings.html"

    def get(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
        return self.render_to_response(self.get_context_data(form=SettingsForm()))

    def post(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponseBase:
        """Save the changed settings."""
        assert isinstance(request.user, User)
        form = SettingsForm(request.POST)
        if form.is_valid():
            try:
                change_site(request.user, form.cleaned_data, now=timezone.now())
            except UserError as error:
                show_error(form, error)
            else:
                messages.success(request, _("The settings are saved and in effect."))
                return redirect("manage:settings")
        return self.render_to_response(self.get_context_data(form=form), status=422)


class AnnouncementTable(PanelTable):
    """A table with one row for each announcement."""

    text = tables.LinkColumn("manage:announcement", args=[tables.A("pk")], verbose_name=_l("Text"))
    tone = tables.Column(_l("Tone"))
    starts_at = tables.Column(_l("From"))
    ends_at = tables.Column(_l("Until"), default=_l("it is deleted"))

    class Meta(PanelTable.Meta):
        model = Announcement
        fields = ("text", "tone", "starts_at", "ends_at")
        order_by = "-starts_at"

    def render_starts_at(self, value: Any) -> str:
        return exact(value)

    def render_ends_at(self, value: Any) -> str:
        return exact(value)


class AnnouncementFilter(PanelFilter):
    """Filters announcements by words."""

    search_fields = ("text",)
    search_hint = _l("Text")

    class Meta:
        model = Announcement
        fields: ClassVar[list[str]] = ["tone"]


class AnnouncementList(ListPage):
    """The list of announcements, for superadmins."""

    section = "announcements"
    title = _l("Announcements")
    lead = _l("shown at the top of every page")
    table_class = AnnouncementTable
    filterset_class = AnnouncementFilter
    create_address = "manage:announcement-new"
    create_label = _l("New announcement")
    empty_text = _l("Announce maintenance or news here.")

    def get_queryset(self) -> QuerySet[Announcement]:
        return Announcement.objects.all()


class AnnouncementForm(EditForm):
    """The form of an announcement: its text, and when it is shown."""

    class Meta:
        model = Announcement
        fields: ClassVar[list[str]] = ["text", "tone", "starts_at", "ends_at"]
        labels: ClassVar[dict[str, Any]] = {"starts_at": _l("From (UTC)"), "ends_at": _l("Until (UTC)")}
        widgets: ClassVar[dict[str, Any]] = {
            "text": forms.Textarea(attrs={"rows": 3}),
            "starts_at": forms.DateTimeInput(attrs={"type": "datetime-local"}, format="%Y-%m-%dT%H:%M"),
            "ends_at": forms.DateTimeInput(attrs={"type": "datetime-local"}, format="%Y-%m-%dT%H:%M"),
        }


class AnnouncementPage(FormPage):
    """The form of a new or existing announcement."""

    section = "announcements"
    title = _l("New announcement")
    model = Announcement
    form_class = AnnouncementForm
    audit_name = "announcement"
    submit_label = _l("Save announcement")
    delete_label = _l("Delete announcement")
    list_address = "manage:announcements"
    delete_address = "manage:announcement-delete"

    def success_text(self, saved: Any) -> str:
        return _("The announcement is saved.")


class AnnouncementDelete(DeletePage):
    """Deletes an announcement."""

    section = "announcements"
    model = Announcement
    audit_name = "announcement"
    submit_label = _l("Delete announcement")
    list_address = "manage:announcements"
