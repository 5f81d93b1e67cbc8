"""Saves objects from administrators' forms, together with an audit entry of the old and new values."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any
from uuid import UUID

from django.db import transaction
from django.db.models import Manager, Model, QuerySet
from django.forms import ModelForm

from backendai.domain.activity.services import audit


def changed_values(form: ModelForm[Any], *, is_new: bool, only: Collection[str] = ()) -> dict[str, list[Any]]:
    """Return old and new value of each field that a valid form changes (``only``: of these fields). Reads the stored
    row, so call it before the form is saved."""
    model = type(form.instance)
    before = None if is_new else model._default_manager.filter(pk=form.instance.pk).first()
    names = [name for name in form.changed_data if not only or name in only]
    old = {name: plain_value(getattr(before, name, None)) if before else None for name in names}
    new = {name: plain_value(form.cleaned_data.get(name)) for name in names}
    return {name: [old[name], new[name]] for name in names if old[name] != new[name]}


def save_form(actor_id: UUID | None, form: ModelForm[Any], audit_name: str, *, only: Collection[str] = ()) -> Any:
    """Save the object of a valid form with an audit entry ``<audit_name>.create`` or ``.change``, and return it."""
    is_new = form.instance._state.adding
    changes = changed_values(form, is_new=is_new, only=only)
    with transaction.atomic():
        saved = form.save()
        if changes:
            action = f"{audit_name}.{'create' if is_new else 'change'}"
            audit(actor_id, action, audit_name, [saved.pk], name=str(saved), changes=changes)
    return saved


def delete_object(actor_id: UUID | None, target: Model, audit_name: str) -> None:
    """Delete a row and write an audit entry."""
    with transaction.atomic():
        audit(actor_id, f"{audit_name}.delete", audit_name, [target.pk], name=str(target))
        target.delete()


def plain_value(value: Any) -> Any:
    """Return a field's value as JSON; for a relation to many objects, their names."""
    if isinstance(value, Manager):
        value = value.all()
    if isinstance(value, QuerySet):
        return sorted(map(str, value))
    return value if value is None or isinstance(value, bool | int | float | str | list | dict) else str(value)
