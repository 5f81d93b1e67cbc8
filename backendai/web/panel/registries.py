"""Registries: where images come from."""

from __future__ import annotations

from typing import Any, ClassVar

import django_tables2 as tables
from django import forms
from django.contrib import messages
from django.db.models import Count, QuerySet
from django.http import Http404, HttpResponse
from django.shortcuts import redirect
from django.urls import reverse
from django.utils import timezone
from django.utils.html import format_html
from django.views.decorators.http import require_POST

from backendai.catalog.models import Registry
from backendai.catalog.registries import delete_registry, start_scan, write_registry
from backendai.core.errors import UserError
from backendai.web.panel.access import panel_page
from backendai.web.panel.editing import DeletePage, FormPage
from backendai.web.panel.forms import EditForm
from backendai.web.panel.listing import ListPage, PanelFilter, PanelTable
from backendai.web.requests import PageRequest
from backendai.web.templatetags.portal import ago


class RegistryTable(PanelTable):
    """One row per registry."""

    name = tables.LinkColumn("manage:registry", args=[tables.A("pk")])
    url = tables.Column("Address")
    kind = tables.Column("Kind")
    is_enabled = tables.BooleanColumn(verbose_name="Enabled", yesno="yes,no")
    image_count = tables.Column("Images", attrs={"td": {"class": "number"}})
    scanned_at = tables.Column("Looked through", default="never")

    class Meta(PanelTable.Meta):
        model = Registry
        fields = ("name", "url", "kind", "is_enabled", "image_count", "scanned_at")
        order_by = "name"

    def render_scanned_at(self, value: Any) -> str:
        """Return when."""
        return ago(value)


class RegistryFilter(PanelFilter):
    """By name and state."""

    search_fields = ("name", "url")
    search_hint = "Name or address"

    class Meta:
        model = Registry
        fields: ClassVar[list[str]] = ["is_enabled", "kind"]


class RegistryForm(EditForm):
    """A registry; its password is written and never shown."""

    groups = (
        ("Account", ("username", "new_password", "forget_password")),
        ("What is looked through", ("projects", "repositories", "enables_new")),
        ("Reaching it", ("other_hosts", "verify_tls")),
        ("Who may use its images", ("is_global", "domains")),
    )

    new_password = forms.CharField(
        required=False,
        label="Password or token",
        strip=False,
        max_length=1024,
        widget=forms.PasswordInput(attrs={"autocomplete": "new-password"}),
        help_text="Left empty, the present one stays.",
    )
    forget_password = forms.BooleanField(required=False, label="Forget the present password")

    class Meta:
        model = Registry
        fields: ClassVar[list[str]] = [
            "name", "url", "kind", "is_enabled", "username", "projects", "repositories", "enables_new", "other_hosts",
            "verify_tls", "is_global", "domains",
        ]  # fmt: skip
        labels: ClassVar[dict[str, str]] = {
            "url": "Address", "is_enabled": "It may be looked through", "enables_new": "New images can be used at once",
            "other_hosts": "Further hosts", "verify_tls": "Check its certificate", "is_global": "Open to all domains",
        }  # fmt: skip
        widgets: ClassVar[dict[str, Any]] = {"repositories": forms.Textarea(attrs={"rows": 3, "spellcheck": "false"})}

    def values(self) -> dict[str, Any]:
        """Return what the form says as the verb takes it."""
        data = {name: self.cleaned_data[name] for name in self.Meta.fields} | {
            "domains": list(self.cleaned_data["domains"])
        }
        if self.cleaned_data["new_password"]:
            return data | {"password": self.cleaned_data["new_password"]}
        return data | ({"password": ""} if self.cleaned_data["forget_password"] else {})


class RegistryList(ListPage):
    """Every registry, for superadmins."""

    section = "registries"
    title = "Registries"
    lead = "where images come from"
    table_class = RegistryTable
    filterset_class = RegistryFilter
    create_address = "manage:registry-new"
    create_label = "New registry"
    empty_text = "Add the registry of your lab, look through it, and enable the images that people may use."

    def get_queryset(self) -> QuerySet[Registry]:
        """Return the registries with the number of their images."""
        return Registry.objects.annotate(image_count=Count("images"))


class RegistryPage(FormPage):
    """One registry, or a new one."""

    section = "registries"
    title = "New registry"
    template_name = "web/panel/registry.html"
    model = Registry
    form_class = RegistryForm
    audit_name = "registry"
    list_address = "manage:registries"
    delete_address = "manage:registry-delete"

    def save(self, form: EditForm) -> Any:
        """Write it through its verb."""
        assert isinstance(form, RegistryForm)
        return write_registry(self.viewer.pk, self.find() or Registry(), form.values())

    def success_text(self, saved: Any) -> str:
        """Return what is said after saving."""
        return f"Registry {saved} is saved. Look through it to see what it has."

    def success_url(self, saved: Any) -> str:
        """Stay with the registry, where it can be looked through."""
        return reverse("manage:registry", args=[saved.pk])


class RegistryDelete(DeletePage):
    """Asks before a registry goes."""

    section = "registries"
    title = "Delete registry"
    model = Registry
    audit_name = "registry"
    list_address = "manage:registries"

    def consequences(self) -> list[str]:
        """Return what will happen."""
        return ["Its images stay in the catalogue, and its password is forgotten."]

    def act(self) -> str:
        """Delete it through its verb."""
        name = str(self.object)
        delete_registry(self.viewer.pk, self.object)
        return f"{name} is deleted."


@require_POST
@panel_page()
def registry_scan(request: PageRequest, pk: int) -> HttpResponse:
    """Begin to look through a registry."""
    registry = Registry.objects.filter(pk=pk).first()
    if registry is None:
        raise Http404
    try:
        start_scan(request.user, registry, now=timezone.now())
    except UserError as error:
        messages.error(request, error.message)
    else:
        where = reverse("web:notifications")
        text = '{} is being looked through; the bell shows <a href="{}">how far it is</a>.'
        messages.success(request, format_html(text, registry.name, where))
    came_from_maintenance = request.POST.get("from") == "maintenance"
    return redirect("manage:maintenance") if came_from_maintenance else redirect("manage:registry", pk=pk)
