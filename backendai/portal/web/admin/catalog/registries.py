"""Pages of image registries."""

from __future__ import annotations

from typing import Any, ClassVar

import django_tables2 as tables
from django import forms
from django.contrib import messages
from django.db.models import Count, QuerySet
from django.http import Http404, HttpResponse
from django.shortcuts import redirect
from django.urls import path, reverse
from django.utils import timezone
from django.utils.functional import cached_property
from django.utils.html import format_html
from django.views.decorators.http import require_POST

from backendai.base.core.errors import UserError
from backendai.base.texts.messages import in_words
from backendai.base.texts.translation import gettext as _
from backendai.base.texts.translation import gettext_lazy as _l
from backendai.domain.activity.jobs import newest_jobs
from backendai.domain.activity.models import BackgroundJob
from backendai.domain.catalog.models import Registry
from backendai.domain.catalog.registries import SCAN_JOB, delete_registry, start_scan, write_registry
from backendai.portal.web.admin.access import panel_page
from backendai.portal.web.admin.forms import EditForm
from backendai.portal.web.admin.listing import NumberColumn, PanelTable, TimeColumn, YesNoColumn
from backendai.portal.web.admin.objects import ObjectPages
from backendai.portal.web.frame.requests import PageRequest

_TONES: dict[str, str] = {
    BackgroundJob.Status.DONE: "tone-good",
    BackgroundJob.Status.FAILED: "tone-bad",
    BackgroundJob.Status.CANCELLED: "tone-over",
}


class RegistryTable(PanelTable):
    """A table with one row for each registry."""

    name = tables.LinkColumn("manage:registry", args=[tables.A("pk")])
    url = tables.Column(_l("Address"))
    kind = tables.Column(_l("Kind"))
    is_enabled = YesNoColumn(_l("Enabled"))
    image_count = NumberColumn(_l("Images"))
    scanned_at = TimeColumn(_l("Last scan"), default=_l("never"))
    state = tables.Column(_l("Last scan"), empty_values=(), orderable=False)

    class Meta(PanelTable.Meta):
        model = Registry
        order_by = "name"

    @cached_property
    def _scans(self) -> dict[str, BackgroundJob]:
        return newest_jobs(SCAN_JOB, [record.name for record in self.data.data])

    def render_state(self, record: Registry) -> str:
        """Return the status of the last scan, with the error of a failed one."""
        job = self._scans.get(record.name)
        if job is None:
            return "–"
        tone = _TONES.get(job.status, "tone-wait")
        look = format_html('<span class="status {}">{}</span>', tone, in_words(job.get_status_display()))
        if job.status != BackgroundJob.Status.FAILED:
            return look
        address = reverse("manage:jobs")
        return format_html('{}<div class="sub"><a href="{}">{}</a></div>', look, address, in_words(job.message))

    def value_state(self, record: Registry) -> str:
        """Return status and message of the last scan as text for files."""
        job = self._scans.get(record.name)
        return f"{job.status}: {job.message}" if job else ""


class RegistryForm(EditForm):
    """The form of a registry. Its passwords can be set, but are never shown."""

    groups = (
        (_l("Account"), ("username", "new_password", "clear_password")),
        (_l("Scan scope"), ("projects", "repositories", "enables_new")),
        (_l("Push target"), ("takes_pushes", "push_username", "new_push_password", "clear_push_password")),
        (_l("Connection"), ("other_hosts", "verify_tls")),
        (_l("Who may use its images"), ("is_global", "domains")),
    )

    new_password = forms.CharField(
        required=False,
        label=_l("Password or token"),
        strip=False,
        max_length=1024,
        widget=forms.PasswordInput(attrs={"autocomplete": "new-password"}),
        help_text=_l("Empty: the stored one is kept."),
    )
    clear_password = forms.BooleanField(required=False, label=_l("Clear the stored password"))

    new_push_password = forms.CharField(
        required=False,
        label=_l("Password or token for pushing"),
        strip=False,
        max_length=1024,
        widget=forms.PasswordInput(attrs={"autocomplete": "new-password"}),
        help_text=_l("Empty: the stored one is kept."),
    )
    clear_push_password = forms.BooleanField(required=False, label=_l("Clear the stored password for pushing"))

    class Meta:
        model = Registry
        fields: ClassVar[list[str]] = [
            "name", "url", "kind", "is_enabled", "username", "projects", "repositories", "enables_new", "takes_pushes",
            "push_username", "other_hosts", "verify_tls", "is_global", "domains",
        ]  # fmt: skip
        labels: ClassVar[dict[str, Any]] = {
            "url": _l("Address"),
            "is_enabled": _l("Allow scanning"),
            "enables_new": _l("Enable new images automatically"),
            "takes_pushes": _l("Push customized images here"),
            "push_username": _l("Account for pushing"),
            "other_hosts": _l("Additional hosts"),
            "verify_tls": _l("Check its certificate"),
            "is_global": _l("Open to all domains"),
        }
        widgets: ClassVar[dict[str, Any]] = {"repositories": forms.Textarea(attrs={"rows": 3, "spellcheck": "false"})}

    def values(self) -> dict[str, Any]:
        """Return the form's values for the service."""
        data = super().values() | {"domains": list(self.cleaned_data["domains"])}
        for name in ("password", "push_password"):
            if self.cleaned_data[f"new_{name}"]:
                data[name] = self.cleaned_data[f"new_{name}"]
            elif self.cleaned_data[f"clear_{name}"]:
                data[name] = ""
        return data


@require_POST
@panel_page()
def registry_scan(request: PageRequest, pk: int) -> HttpResponse:
    """Start a scan of a registry."""
    registry = Registry.objects.filter(pk=pk).first()
    if registry is None:
        raise Http404
    try:
        start_scan(request.user, registry, now=timezone.now())
    except UserError as error:
        messages.error(request, in_words(error.message))
    else:
        where = reverse("web:notifications")
        text = _('{} is being scanned; the bell shows <a href="{}">the progress</a>.')
        messages.success(request, format_html(text, registry.name, where))
    came_from_maintenance = request.POST.get("from") == "maintenance"
    return redirect("manage:maintenance") if came_from_maintenance else redirect("manage:registry", pk=pk)


class Registries(ObjectPages):
    """Image registries, for superadmins."""

    section = "registries"
    name = "registry"
    model = Registry
    title = _l("Registries")
    icon = "download"
    guide = "registries"
    lead = _l("where images come from")
    table_class = RegistryTable
    search_fields = ("name", "url")
    search_hint = _l("Name or address")
    filter_fields = ("is_enabled", "kind")
    empty_text = _l("Add your lab's registry, scan it, and enable the images that people may use.")
    form_class = RegistryForm
    form_template = "web/panel/registry.html"
    new_label = _l("New registry")
    save_label = _l("Save registry")
    saved_text = _l("Registry %(saved)s is saved. Scan it to see its images.")
    row_address = "manage:registry"
    delete_label = _l("Delete registry")
    more = (path("registries/<int:pk>/scan/", registry_scan, name="registry-scan"),)

    def rows(self) -> QuerySet[Registry]:
        """Return the registries with the number of their images."""
        return Registry.objects.annotate(image_count=Count("images"))

    def save(self, form: EditForm) -> Any:
        """Save the registry by the service, with its checks and audit entry."""
        return write_registry(self.viewer.pk, self.find() or Registry(), form.values())

    def consequences(self) -> list[str]:
        return [_("Its images stay in the catalogue, and its password is deleted.")]

    def delete(self) -> None:
        delete_registry(self.viewer.pk, self.object)
