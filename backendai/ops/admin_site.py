"""Django's admin at ``/admin/`` shows every table, without secrets. People change rows in the administration pages."""

from __future__ import annotations

import re
from typing import Any

from allauth.mfa.models import Authenticator
from allauth.socialaccount.models import SocialAccount
from django.apps import apps
from django.contrib import admin
from django.db import models
from django.http import HttpRequest
from django.urls import reverse

from backendai.domain.accounts.models import LoginCount
from backendai.domain.activity.changes import delete_object
from backendai.domain.cluster.models import Agent, ResourceGroup
from backendai.domain.compute.models import ComputeSession

# A column with such a name is hidden, also one that is added later, unless PLAIN lists it.
SECRET = re.compile(
    r"secret|digest|key|token|password|sealed|content|code|environ|data|manifest|signature"
    r"|^(text|document|parameters|request|spec|arguments|entry|login)$"
)
PLAIN = frozenset({
    "accounts.KeyPair.access_key", "accounts.LoginCount.key", "accounts.SshKey.public_key",
    "catalog.Image.digest", "catalog.ImageOnAgent.digest", "cluster.Announcement.text",
    "compute.ComputeSession.access_key", "compute.ComputeSession.idempotency_key",
    "compute.ComputeSession.image_digest", "compute.ComputeSession.status_data", "compute.Kernel.exit_code",
    "compute.Kernel.image_digest", "compute.SchedulingRecord.error_code", "forecasts.RunLengths.key",
    "forecasts.StartForecast.code", "pipelines.Run.idempotency_key", "pipelines.Task.code",
    "serving.ScalingRecord.code", "serving.ScalingRecord.data",
})  # fmt: skip
# The columns of a list, where the first eight of the table say less.
LISTED = {
    "accounts.User": "email full_name role domain is_active last_login",
    "activity.BackgroundJob": "created_at kind subject owner status progress message",
    "cluster.Agent": "name resource_group status schedulable backend last_seen_at",
    "cluster.ResourceGroup": "name is_active is_default is_public sequence selection",
    "compute.ComputeSession": "name owner status status_reason resource_group created_at",
    "compute.Kernel": "id session hostname status agent generation container_id exit_code",
    "compute.SchedulingRecord": "session phase result from_status to_status attempts error_code updated_at",
    "serving.Endpoint": "name owner project wish minimum maximum desired created_at",
    "serving.Replica": "endpoint number state reason created_at ready_at ended_at",
    "storage.Folder": "name host user project status limit_bytes used_bytes created_at",
}
# What people delete here alone: it ends a wait after wrong passwords, and the next sign-in finds its account anew.
DELETABLE = {LoginCount: "login-count", SocialAccount: "identity"}
_NAMES = ("name", "email")


def is_hidden(field: models.Field) -> bool:
    """Return whether a column may hold a secret."""
    looks_secret = isinstance(field, models.BinaryField) or SECRET.search(field.name)
    return bool(looks_secret) and not field.is_relation and f"{field.model._meta.label}.{field.name}" not in PLAIN


def columns_of(model: type[models.Model]) -> dict[str, Any]:
    """Return what the admin shows of a table: columns, filters and search of its list, and the fields of a row."""
    columns = {field.name: field for field in model._meta.concrete_fields if not is_hidden(field)}
    listed = LISTED[model._meta.label].split() if model._meta.label in LISTED else list(columns)[:8]
    related = [columns[name] for name in listed if columns[name].is_relation]
    shown = [*columns, *(field.name for field in model._meta.many_to_many)]
    return {
        "fields": shown,
        "readonly_fields": shown,
        "list_display": listed,
        "list_select_related": [field.name for field in related],
        "list_filter": [
            field.name
            for field in columns.values()
            if field.choices or isinstance(field, models.BooleanField) or field.related_model in (Agent, ResourceGroup)
        ],
        "search_fields": [
            *(name for name, field in columns.items() if isinstance(field, models.CharField | models.UUIDField)),
            *(f"{field.name}__{name}" for field in related for name in _NAMES if hasattr(field.related_model, name)),
        ],
    }


class Rows(admin.ModelAdmin):
    """The rows of one table, which people can only view, except those of DELETABLE."""

    show_full_result_count = False

    def has_add_permission(self, request: HttpRequest) -> bool:
        return False

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return self.model in DELETABLE and super().has_delete_permission(request, obj)

    def lookup_allowed(self, lookup: str, value: Any, request: HttpRequest) -> bool:
        """Return whether the address of a list may filter so; by a hidden column it may not."""
        shown = lookup.split("__")[0] in {*self.readonly_fields, "pk"}
        return shown and super().lookup_allowed(lookup, value, request)

    def delete_model(self, request: HttpRequest, obj: Any) -> None:
        """Delete the row, and record it in the audit log."""
        delete_object(request.user.pk, obj, DELETABLE[self.model])

    def delete_queryset(self, request: HttpRequest, queryset: Any) -> None:
        """Delete the rows, and record each in the audit log."""
        for row in queryset:
            self.delete_model(request, row)

    def get_view_on_site_url(self, obj: Any = None) -> str | None:
        """Return the address of a session's page."""
        return reverse("web:session", args=[obj.pk]) if isinstance(obj, ComputeSession) else None


for _model in apps.get_models():
    if _model.__module__.startswith("backendai.") or _model in (Authenticator, SocialAccount):
        admin.site.register(_model, Rows, **columns_of(_model))
