"""The folders that an administrator manages, links to existing directories, and transfers to another owner."""

from __future__ import annotations

from typing import Any, ClassVar

import django_filters
import django_tables2 as tables
from django import forms
from django.db.models import F, QuerySet, Value
from django.db.models.functions import Coalesce, Concat
from django.urls import path
from django.utils import timezone

from backendai.base.core.slots import format_size
from backendai.base.texts.translation import gettext as _
from backendai.base.texts.translation import gettext_lazy as _l
from backendai.base.texts.translation import ngettext
from backendai.domain.accounts.models import Project, User
from backendai.domain.storage.models import Folder, StorageHost
from backendai.domain.storage.services import link_folder, transfer_folders
from backendai.domain.storage.status import FolderStatus
from backendai.portal.web.admin.access import administrator
from backendai.portal.web.admin.editing import FormPage
from backendai.portal.web.admin.forms import EditForm, GroupedFields
from backendai.portal.web.admin.listing import ListPage, NumberColumn, PanelFilter, PanelTable, TimeColumn
from backendai.portal.web.templatetags.folders import folder_status


class FolderTable(PanelTable):
    """A table with one row for each folder."""

    name = tables.LinkColumn("web:folder_settings", args=[tables.A("pk")], verbose_name=_l("Name"))
    owner_name = tables.Column(_l("Owner"))
    host = tables.Column(_l("Storage host"))
    status = tables.Column(_l("State"))
    used_bytes = NumberColumn(_l("Size"), default="–")
    limit_bytes = NumberColumn(_l("Limit"), default="∞")
    used_files = NumberColumn(_l("Files"), default="–")
    created_at = TimeColumn(_l("Created"))

    class Meta(PanelTable.Meta):
        model = Folder
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
    list_address = "manage:folders"
    row_address = "web:folder_settings"
    submit_label = _l("Link directory")
    saved_text = _l("%(saved)s is offered.")
    is_atomic = False

    def save(self, form: EditForm) -> Folder:
        """Link the directory by the service."""
        return link_folder(self.viewer, **form.values(), path=form.cleaned_data["path"], now=timezone.now())


class TransferForm(GroupedFields, forms.Form):
    """The current and the new owner of folders."""

    shown_at: ClassVar[dict[str, str]] = {"to_user": "to_email"}
    from_email = forms.EmailField(label=_l("Folders of"), help_text=_l("The e-mail address of their owner."))
    to_email = forms.EmailField(label=_l("New owner"), help_text=_l("The e-mail address of an active account."))


class TransferPage(FormPage):
    """Transfers all folders of one person to another, also those in the trash."""

    section = "folders"
    title = _l("Transfer folders")
    lead = _l(
        "All folders of one person go to another, those in the trash too, for example before an account is purged. "
        "Shares stay. A name that the new owner uses already gets a number. Limits of policies are not checked."
    )
    rule = staticmethod(administrator)
    list_address = "manage:folders"
    submit_label = _l("Transfer folders")
    is_atomic = False

    def make_form(self, data: Any = None) -> TransferForm:
        """Return the form, filled with the owner in the address."""
        return TransferForm(data, initial={"from_email": self.request.GET.get("from", "")})

    def save(self, form: TransferForm) -> tuple[int, str] | None:
        """Transfer the folders by the service; return their number, and the address of their new owner."""
        people = [self._person(form, name) for name in ("from_email", "to_email")]
        if form.errors:
            return None
        return len(transfer_folders(self.viewer, *people, now=timezone.now())), people[1].email

    def success_text(self, saved: tuple[int, str]) -> str:
        number, email = saved
        folders = ngettext("%(number)s folder", "%(number)s folders", number) % {"number": number}
        return _("Transferred to %(to)s: %(folders)s.") % {"folders": folders, "to": email}

    def _person(self, form: TransferForm, name: str) -> Any:
        person = User.objects.visible_to(self.viewer).filter(email__iexact=form.cleaned_data[name]).first()
        if person is None:
            form.add_error(name, _("You manage nobody with this address."))
        return person


class Folders(ListPage):
    """The list of folders: of the domain for its administrators, of all domains for superadmins."""

    section = "folders"
    title = _l("Folders")
    icon = "folder"
    guide = "folders"
    lead = _l("who holds how much data")
    rule = staticmethod(administrator)
    template_name = "web/panel/folders.html"
    table_class = FolderTable
    filterset_class = FolderFilter
    empty_text = _l("Nobody has created a folder yet.")
    more = (
        path("folders/transfer/", TransferPage.as_view(), name="folder-transfer"),
        path("folders/link/", LinkPage.as_view(), name="folder-link"),
    )

    def get_queryset(self) -> QuerySet[Folder]:
        """Return the folders that the user manages, with the names of their owners."""
        owner = Coalesce("user__email", Concat(F("project__name"), Value(" ("), F("project__domain__name"), Value(")")))
        rows = Folder.objects.visible_to(self.viewer).filter(rights="manage").select_related("host")
        return rows.annotate(owner_name=owner)
