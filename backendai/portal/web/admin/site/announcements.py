"""Pages of announcements."""

from __future__ import annotations

from typing import Any, ClassVar

import django_tables2 as tables
from django import forms
from django.utils.translation import gettext_lazy as _l

from backendai.domain.cluster.models import Announcement
from backendai.portal.web.admin.forms import EditForm
from backendai.portal.web.admin.listing import PanelTable, TimeColumn
from backendai.portal.web.admin.objects import ObjectPages
from backendai.portal.web.templatetags.portal import exact


class AnnouncementTable(PanelTable):
    """A table with one row for each announcement."""

    text = tables.LinkColumn("manage:announcement", args=[tables.A("pk")], verbose_name=_l("Text"))
    tone = tables.Column(_l("Tone"))
    starts_at = TimeColumn(_l("From"), words=exact)
    ends_at = TimeColumn(_l("Until"), words=exact, default=_l("it is deleted"))

    class Meta(PanelTable.Meta):
        model = Announcement
        order_by = "-starts_at"


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


class Announcements(ObjectPages):
    """Announcements, for superadmins."""

    section = "announcements"
    name = "announcement"
    audit_name = "announcement"
    model = Announcement
    title = _l("Announcements")
    icon = "speakerphone"
    guide = "the-site"
    lead = _l("shown at the top of every page")
    table_class = AnnouncementTable
    search_fields = ("text",)
    search_hint = _l("Text")
    filter_fields = ("tone",)
    empty_text = _l("Announce maintenance or news here.")
    form_class = AnnouncementForm
    new_label = _l("New announcement")
    save_label = _l("Save announcement")
    saved_text = _l("The announcement is saved.")
    delete_label = _l("Delete announcement")
