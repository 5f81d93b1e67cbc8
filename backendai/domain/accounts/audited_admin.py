"""Admin pages that record their changes in the audit log: who changed which field, with old and new values."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, ClassVar

from django.contrib import admin
from django.db import transaction
from django.forms import ModelForm
from django.http import HttpRequest

from backendai.domain.activity.changes import changed_values, delete_object
from backendai.domain.activity.services import audit


class Audited(admin.ModelAdmin):
    """A mixin for admin pages that records changes in the audit log.

    ``audit_name`` is the type of the target; ``audited_fields`` are the fields to record (empty: all).
    """

    audit_name: ClassVar[str]
    audited_fields: ClassVar[Collection[str]] = ()

    def save_model(self, request: HttpRequest, obj: Any, form: ModelForm, change: bool) -> None:
        """Save the object, and record its changed fields in the audit log."""
        changes = changed_values(form, is_new=not change, only=self.audited_fields)
        action = f"{self.audit_name}.{'change' if change else 'create'}"
        with transaction.atomic():
            super().save_model(request, obj, form, change)
            if changes:
                audit(request.user.pk, action, self.audit_name, [obj.pk], name=str(obj), changes=changes)

    def save_formset(self, request: HttpRequest, form: ModelForm, formset: Any, change: bool) -> None:
        """Save the rows of an inline table, and record their changes in the audit log."""
        with transaction.atomic():
            super().save_formset(request, form, formset, change)
            name = formset.model._meta.model_name
            changed = [obj for obj, _ in formset.changed_objects]
            for action, rows in (
                ("create", formset.new_objects),
                ("change", changed),
                ("delete", formset.deleted_objects),
            ):
                for row in rows:
                    details = {"name": str(row), "of": str(form.instance)}
                    audit(request.user.pk, f"{name}.{action}", self.audit_name, [form.instance.pk], **details)

    def delete_model(self, request: HttpRequest, obj: Any) -> None:
        """Delete the object, and record it in the audit log."""
        delete_object(request.user.pk, obj, self.audit_name)

    def delete_queryset(self, request: HttpRequest, queryset: Any) -> None:
        """Delete the objects, and record each in the audit log."""
        with transaction.atomic():
            for obj in queryset:
                audit(request.user.pk, f"{self.audit_name}.delete", self.audit_name, [obj.pk], name=str(obj))
            super().delete_queryset(request, queryset)
