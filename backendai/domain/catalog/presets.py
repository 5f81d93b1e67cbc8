"""Saves and deletes resource presets."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from uuid import UUID

from django.core.exceptions import ValidationError
from django.db import IntegrityError, transaction

from backendai.base.core.errors import Conflict, UserError
from backendai.domain.activity.changes import delete_object, plain_value
from backendai.domain.activity.services import audit
from backendai.domain.catalog.models import ResourcePreset
from backendai.domain.catalog.preset_rules import taken_name
from backendai.domain.cluster.slot_types import check_known

_FIELD = {"slots": "resources"}  # as REST calls them


def write_preset(actor_id: UUID | None, preset: ResourcePreset, values: Mapping[str, Any]) -> ResourcePreset:
    """Save these fields of a new or stored preset, with an audit entry; return the preset.

    Raises UserError that names the field, or Conflict if the name is taken in this group (or for all groups).
    """
    is_new = preset._state.adding
    kept = () if is_new else set(preset.slots)
    changes = {}
    for name, value in values.items():
        old = None if is_new else plain_value(getattr(preset, name))
        setattr(preset, name, value)
        if old != plain_value(value):
            changes[name] = [old, plain_value(value)]
    with transaction.atomic():
        try:
            with transaction.atomic():
                preset.save()
        except ValidationError as error:
            raise _first_of(error) from error
        except IntegrityError as error:
            raise _taken(preset) from error
        check_known(preset.slots, field="resources", kept=kept)
        if changes:
            action = f"preset.{'create' if is_new else 'change'}"
            audit(actor_id, action, "preset", [preset.pk], name=preset.name, changes=changes)
    return preset


def delete_preset(actor_id: UUID | None, preset: ResourcePreset) -> None:
    """Delete a preset. Sessions launched with it keep their amounts."""
    delete_object(actor_id, preset, "preset")


def _first_of(error: ValidationError) -> UserError:
    field, messages = next(iter(error.message_dict.items()))
    return UserError(messages[0], field=_FIELD.get(field, field), code="invalid-preset")


def _taken(preset: ResourcePreset) -> Conflict:
    return Conflict(taken_name(preset.name, preset.resource_group), field="name", code="name-taken")
