"""The folders that an administrator manages, links to existing directories, and transfers to another owner."""

from __future__ import annotations

from typing import Any, ClassVar

import django_filters
import django_tables2 as tables
from django import forms
from django.contrib import messages
from django.db.models import F, QuerySet, Value
from django.db.models.functions import Coalesce, Concat
from django.http import HttpRequest, HttpResponseBase
from django.shortcuts import redirect
from django.utils import timezone
from django.utils.translation import gettext_lazy as _l
from django.views.generic import TemplateView

from backendai.base.core.errors import UserError
from backendai.base.core.slots import format_size
from backendai.base.texts.messages import in_words
from backendai.base.texts.translation import gettext as _
from backendai.base.texts.translation import ngettext
from backendai.domain.accounts.models import Project, User
from backendai.domain.storage.models import Folder, StorageHost
from backendai.domain.storage.services import link_folder, transfer_folders
from backendai.domain.storage.status import FolderStatus
from backendai.portal.web.admin.access import PanelPage
from backendai.portal.web.admin.agents.queue import administrator
from backendai.portal.web.admin.editing import FormPage, show_error
from backendai.portal.web.admin.forms import EditForm
from backendai.portal.web.admin.listing import ListPage, PanelFilter, PanelTable
from backendai.portal.web.templatetags.folders import folder_status
from backendai.portal.web.templatetags.portal import ago


class FolderTable(PanelTable):
    """A table with one row for each folder."""

    name = tables.LinkColumn("web:folder_settings", args=[tables.A("pk")], verbose_name=_l("Name"))
    owner_name = tables.Column(_l("Owner"))
    host = tables.Column(_l("Storage host"))
    status = tables.Column(_l("State"))
    used_bytes = tables.Column(_l("Size"), default="–", attrs={"td": {"class": "number"}})
    limit_bytes = tables.Column(_l("Limit"), default="∞", attrs={"td": {"class": "number"}})
    used_files = tables.Column(_l("Files"), default="–", attrs={"td": {"class": "number"}})
    created_at = tables.Column(_l("Created"))

    class Meta(PanelTable.Meta):
        model = Folder
        fields = ("name", "owner_name", "host", "status", "used_bytes", "limit_bytes", "used_files", "created_at")
        order_by = "-used_bytes"

    def render_status(self, record: Folder) -> str:
        """Return the coloured status."""
        return folder_status(record)

    def value_status(self, value: str) -> str:
        return value

    def render_used_bytes(self, value: int) -> str:
        return format_size(value)

    def value_used_bytes(self, value: int) -> int:
        return value

    def order_used_bytes(self, rows: QuerySet[Any], is_descending: bool) -> tuple[QuerySet[Any], bool]:
        """Order by size, with folders that nobody has measured last: databases place them differently."""
        size = F("used_bytes")
        return rows.order_by(size.desc(nulls_last=True) if is_descending else size.asc(nulls_last=True)), True

    render_limit_bytes = render_used_bytes
    value_limit_bytes = value_used_bytes

    def render_created_at(self, value: Any) -> str:
        return ago(value)


class FolderFilter(PanelFilter):
    """Filters folders by name, owner, host and status."""

    search_fields = ("name", "user__email", "project__name")
    search_hint = _l("Name or owner")
    status = django_filters.ChoiceFilter(
        label=_l("State"), choices=[one for one in FolderStatus.choices if one[0] != FolderStatus.DELETED]
    )
    host = django_filters.ModelChoiceFilter(label=_l("Storage host"), queryset=StorageHost.objects.order_by("name"))

    class Meta:
        model = Folder
        fields: ClassVar[list[str]] = []


class FolderList(ListPage):
    """The list of folders: of the domain for its administrators, of all domains for superadmins."""

    section = "folders"
    title = _l("Folders")
    lead = _l("who holds how much data")
    rule = staticmethod(administrator)
    template_name = "web/panel/folders.html"
    table_class = FolderTable
    filterset_class = FolderFilter
    empty_text = _l("Nobody has created a folder yet.")

    def get_queryset(self) -> QuerySet[Folder]:
        """Return the folders that the user manages, with the names of their owners."""
        owner = Coalesce("user__email", Concat(F("project__name"), Value(" ("), F("project__domain__name"), Value(")")))
        rows = Folder.objects.visible_to(self.viewer).filter(rights="manage").select_related("host")
        return rows.annotate(owner_name=owner)


class LinkForm(EditForm):
    """An existing directory to offer as a folder."""

    path = forms.CharField(
        label=_l("Existing directory"),
        max_length=255,
        help_text=_l("Absolute, as the file server sees it; below a path that its own settings allow."),
        widget=forms.TextInput(attrs={"spellcheck": "false", "placeholder": "/data/imagenet"}),
    )

    class Meta:
        model = Folder
        fields: ClassVar[list[str]] = ["name", "host", "project"]
        labels: ClassVar[dict[str, Any]] = {
            "host": _l("Storage host"),
            "project": _l("Offered to the members of"),
        }

    field_order = ("name", "host", "path", "project")

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.fields["project"].queryset = Project.objects.filter(is_active=True)  # type: ignore[attr-defined]

    def _post_clean(self) -> None:
        """Skip the model's validation, which the service does."""


class LinkPage(FormPage):
    """Offers an existing directory as a folder."""

    section = "folders"
    title = _l("Link a directory")
    lead = _l("Offered read-only, such as a data set. It is never written, measured or deleted.")
    model = Folder
    form_class = LinkForm
    audit_name = "folder"
    list_address = "manage:folders"
    submit_label = _l("Link directory")

    def post(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponseBase:
        """Link the directory by the service. It asks the file server, so there is no transaction."""
        form = self.make_form(request.POST)
        if form.is_valid():
            values = {name: form.cleaned_data[name] for name in ("name", "path", "host", "project")}
            try:
                folder = link_folder(self.viewer, **values, now=timezone.now())
            except UserError as error:
                show_error(form, error)
            else:
                messages.success(request, _("%(name)s is offered.") % {"name": folder.name})
                return redirect("web:folder_settings", folder.pk)
        return self.render_to_response(self.get_context_data(form=form), status=422)


class TransferForm(forms.Form):
    """The current and the new owner of folders."""

    from_email = forms.EmailField(label=_l("Folders of"), help_text=_l("The e-mail address of their owner."))
    to_email = forms.EmailField(label=_l("New owner"), help_text=_l("The e-mail address of an active account."))


class TransferPage(PanelPage, TemplateView):
    """Transfers all folders of one person to another, also those in the trash."""

    section = "folders"
    title = _l("Transfer folders")
    rule = staticmethod(administrator)
    template_name = "web/panel/transfer_folders.html"

    def get_context_data(self, **kwargs: Any) -> dict[str, Any]:
        """Return the context with the form, filled with the owner in the address."""
        form = kwargs.pop("form", None) or TransferForm(initial={"from_email": self.request.GET.get("from", "")})
        return super().get_context_data(form=form, **kwargs)

    def post(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponseBase:
        """Transfer the folders by the service. It asks the file servers, so there is no transaction."""
        form = TransferForm(request.POST)
        if form.is_valid() and (people := self._people(form)):
            try:
                moved = transfer_folders(self.viewer, *people, now=timezone.now())
            except UserError as error:
                form.add_error({"to_user": "to_email"}.get(error.field or ""), in_words(error.message))
            else:
                number = ngettext("%(number)s folder", "%(number)s folders", len(moved)) % {"number": len(moved)}
                told = {"folders": number, "to": people[1].email}
                messages.success(request, _("Transferred to %(to)s: %(folders)s.") % told)
                return redirect("manage:folders")
        return self.render_to_response(self.get_context_data(form=form), status=422)

    def _people(self, form: TransferForm) -> tuple[User, User] | None:
        found = []
        for name in ("from_email", "to_email"):
            rows = User.objects.visible_to(self.viewer).filter(email__iexact=form.cleaned_data[name])
            if (user := rows.first()) is None:
                form.add_error(name, _("You manage nobody with this address."))
            else:
                found.append(user)
        return (found[0], found[1]) if len(found) == 2 else None
