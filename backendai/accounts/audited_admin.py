"""Admin pages whose changes are kept in the audit trail: who changed which field from what to what."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, ClassVar

from django.contrib import admin
from django.db import transaction
from django.db.models import Manager, QuerySet
from django.forms import ModelForm
from django.http import HttpRequest

from backendai.activity.services import audit


class Audited(admin.ModelAdmin):
    """Mixed into an admin page. ``audit_name`` is the target's type; ``audited_fields`` narrows which changes are kept
    (empty: all)."""

    audit_name: ClassVar[str]
    audited_fields: ClassVar[Collection[str]] = ()

    def save_model(self, request: HttpRequest, obj: Any, form: ModelForm, change: bool) -> None:
        """Write the object and what became of its fields."""
        before = type(obj)._default_manager.filter(pk=obj.pk).first() if change else None
        names = [name for name in form.changed_data if not self.audited_fields or name in self.audited_fields]
        old = {name: _plain(getattr(before, name)) if before else None for name in names}
        new = {name: _plain(form.cleaned_data.get(name)) for name in names}
        changes = {name: [old[name], new[name]] for name in names if old[name] != new[name]}
        action = f"{self.audit_name}.{'change' if change else 'create'}"
        with transaction.atomic():
            super().save_model(request, obj, form, change)
            if changes:
                audit(request.user.pk, action, self.audit_name, [obj.pk], name=str(obj), changes=changes)

    def delete_model(self, request: HttpRequest, obj: Any) -> None:
        """Delete the object and say so."""
        with transaction.atomic():
            audit(request.user.pk, f"{self.audit_name}.delete", self.audit_name, [obj.pk], name=str(obj))
            super().delete_model(request, obj)

    def delete_queryset(self, request: HttpRequest, queryset: Any) -> None:
        """Delete the objects and say so."""
        with transaction.atomic():
            for obj in queryset:
                audit(request.user.pk, f"{self.audit_name}.delete", self.audit_name, [obj.pk], name=str(obj))
            super().delete_queryset(request, queryset)


def _plain(value: Any) -> Any:
    """Return a field's value as JSON; of many other objects, their names."""
    if isinstance(value, Manager):
        value = value.all()
    if isinstance(value, QuerySet):
        return sorted(map(str, value))
    return value if value is None or isinstance(value, bool | int | float | str | list | dict) else str(value)
