"""Pages of storage hosts, with the state of their file servers."""

from __future__ import annotations

from typing import Any, ClassVar

import django_tables2 as tables
from django.db.models import Count, Q, QuerySet
from django.utils.html import format_html

from backendai.base.core.slots import format_size
from backendai.base.texts.translation import gettext as _
from backendai.base.texts.translation import gettext_lazy as _l
from backendai.domain.storage.models import HostOnAgent, StorageHost
from backendai.domain.storage.services import delete_host, write_host
from backendai.domain.storage.status import FolderStatus
from backendai.portal.web.admin.forms import EditForm
from backendai.portal.web.admin.listing import NumberColumn, PanelTable, YesNoColumn
from backendai.portal.web.admin.objects import ObjectPages
from backendai.portal.web.templatetags.folders import host_away
from backendai.portal.web.templatetags.portal import ago


class StorageHostTable(PanelTable):
    """A table with one row for each storage host."""

    name = tables.LinkColumn("manage:storage-host", args=[tables.A("pk")], verbose_name=_l("Name"))
    state = tables.Column(_l("File server"), empty_values=(), order_by=("fault", "answered_at"))
    free_bytes = NumberColumn(_l("Free"), empty_values=())
    quota_mode = tables.Column(_l("Limits are"), attrs={"td": {"class": "word"}})
    folder_count = NumberColumn(_l("Folders"))
    unknown = tables.Column(_l("Unknown folders"), accessor="unknown_folders", empty_values=(), orderable=False)
    is_enabled = YesNoColumn(_l("Open for new folders"))

    class Meta(PanelTable.Meta):
        model = StorageHost
        order_by = "name"

    def render_name(self, record: StorageHost) -> str:
        """Return the name, marked if it is the default host."""
        return f"{record.name} ({_('default')})" if record.is_default else record.name

    def render_state(self, record: StorageHost) -> str:
        """Return the state of the file server, with its fault."""
        if record.answered_at is None:
            return format_html('<span class="status tone-wait">{}</span>', _("not seen yet"))
        if not record.fault:
            look = format_html('<span class="status tone-good">{}</span>', _("works"))
            return format_html('{}<div class="sub">{}</div>', look, ago(record.answered_at))
        look = format_html('<span class="status tone-bad">{}</span>', _("fault"))
        return format_html("{}{}", look, host_away(record))

    def value_state(self, record: StorageHost) -> str:
        """Return the state as text for files."""
        return record.fault or ("works" if record.answered_at else "not seen yet")

    def render_free_bytes(self, record: StorageHost) -> str:
        """Return the free and the total size."""
        if record.free_bytes is None or record.total_bytes is None:
            return "–"
        sizes = {"free": format_size(record.free_bytes), "total": format_size(record.total_bytes)}
        return _("%(free)s of %(total)s") % sizes

    def render_unknown(self, record: StorageHost) -> str:
        """Return the number of directories that are missing in the database."""
        return str(len(record.unknown_folders)) if record.unknown_folders else "–"


class StorageHostForm(EditForm):
    """The form of a storage host; its name cannot be changed later."""

    class Meta:
        model = StorageHost
        fields: ClassVar[list[str]] = ["name", "title", "address", "public_address", "is_enabled", "is_default"]
        labels: ClassVar[dict[str, Any]] = {
            "address": _l("Address of its file server"),
            "public_address": _l("Its address for scripts"),
            "is_enabled": _l("New folders can be created here"),
            "is_default": _l("New folders are stored here unless another host is chosen"),
        }

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        if not self.instance._state.adding:
            self.fields["name"].disabled = True

    def _get_validation_exclusions(self) -> set[str]:
        # The verb itself takes the mark of the default from the host that had it.
        return {*super()._get_validation_exclusions(), "is_default"}  # type: ignore[misc]


class StorageHosts(ObjectPages):
    """Storage hosts, for superadmins. The form of one shows its state on agents."""

    section = "storage-hosts"
    name = "storage-host"
    key = "uuid"
    model = StorageHost
    title = _l("Storage hosts")
    icon = "database"
    guide = "folders"
    lead = _l("where folders are stored")
    table_class = StorageHostTable
    search_fields = ("name", "title", "address")
    search_hint = _l("Name or address")
    filter_fields = ("is_enabled",)
    empty_text = _l("Start a file server, and add it here with its address. People can create folders then.")
    form_class = StorageHostForm
    form_template = "web/panel/storage_host.html"
    new_label = _l("New storage host")
    save_label = _l("Save storage host")
    delete_label = _l("Delete storage host")

    def rows(self) -> QuerySet[StorageHost]:
        """Return the storage hosts with the number of their folders."""
        kept = ~Q(folders__status=FolderStatus.DELETED)
        return StorageHost.objects.annotate(folder_count=Count("folders", filter=kept))

    def form_context(self) -> dict[str, Any]:
        """Return the host's state on agents."""
        rows = HostOnAgent.objects.filter(host=self.object).select_related("agent").order_by("agent__name")
        return {"on_agents": list(rows) if self.object else []}

    def save(self, form: EditForm) -> Any:
        """Save the storage host by the service, with its checks and audit entry."""
        return write_host(self.viewer.pk, self.find() or StorageHost(), form.values())

    def consequences(self) -> list[str]:
        return [_("Its files stay on the disk. It cannot be deleted while it has folders.")]

    def delete(self) -> None:
        delete_host(self.viewer.pk, self.object)
