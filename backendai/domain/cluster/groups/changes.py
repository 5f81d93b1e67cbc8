"""Resource groups: chooses the default for a launch, and creates, changes and deletes them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from uuid import UUID

from django.core.exceptions import ValidationError
from django.db import IntegrityError, transaction
from django.db.models import Model, QuerySet

from backendai.base.core.errors import Conflict, UserError
from backendai.base.core.messages import Message
from backendai.base.db.per_request import once
from backendai.domain.accounts.models import KeyPair, Project, User
from backendai.domain.accounts.references import counted_uses, words_for
from backendai.domain.activity.services import audit
from backendai.domain.cluster.models import IdleBinding, JoinToken, ResourceGroup
from backendai.domain.cluster.slot_types import check_known

_NO_OBSTACLE = (JoinToken, IdleBinding)  # they go with the group
_LISTS = ("domains", "projects", "key_pairs")


def _for_launch(project: Any, key_pair: Any) -> QuerySet[Any, Any]:
    return ResourceGroup.objects.usable_for(project, key_pair).order_by("created_at", "pk")


def choose_group(groups: list[ResourceGroup]) -> ResourceGroup | None:
    """Return the group for launches that name none: the default group, else the only one, else None."""
    for group in groups:
        if group.is_default:
            return group
    return groups[0] if len(groups) == 1 else None


def group_for_launch(name: str, project: Project, key_pair: KeyPair | None) -> ResourceGroup:
    """Return the group of this name, or the default one, in which sessions of the project may run.

    Raises UserError that names the possible groups.
    """
    groups = once(
        ("groups-for-launch", project.pk, key_pair and key_pair.pk),
        lambda: list(_for_launch(project, key_pair)),
    )
    found = next((group for group in groups if group.name == name), None) if name else choose_group(groups)
    if found is not None:
        return found
    names = ", ".join(group.name for group in groups) or "none"
    if name or not groups:
        text = (
            Message("Resource group {name} is not open", name=repr(name))
            if name
            else Message("No resource group is open")
        )
        raise UserError(
            "{text} to project {project}; open to it: {names}.",
            text=text,
            project=project.name,
            names=names,
            field="resource_group",
            code="resource-group-not-allowed",
        )
    raise UserError(
        "Name a resource group: several are open to project {project} ({names}), and none is the default.",
        project=project.name,
        names=names,
        field="resource_group",
        code="resource-group-needed",
        groups=[group.name for group in groups],
    )


def default_group_of(user: User) -> ResourceGroup | None:
    """Return the group for launches of this user that name none; None: the user must choose."""
    return choose_group(list(ResourceGroup.objects.visible_to(user).filter(is_active=True)))


def create_group(actor: User, values: Mapping[str, Any]) -> ResourceGroup:
    """Create a group with these columns and lists. Raises UserError that names the field."""
    with transaction.atomic():
        group = _write(ResourceGroup(), values)
        audit(actor.pk, "resource-group.create", "resource-group", [group.pk], name=group.name)
    return group


def change_group(actor: User, group: ResourceGroup, values: Mapping[str, Any]) -> ResourceGroup:
    """Save these columns and lists of a group; the next pass uses them.

    Raises UserError that names the field, and then saves nothing.
    """
    with transaction.atomic():
        before = {name: _plain(group, name) for name in values}
        _write(group, values)
        changes = {name: [old, new] for name, old in before.items() if old != (new := _plain(group, name))}
        if changes:
            audit(actor.pk, "resource-group.change", "resource-group", [group.pk], name=group.name, changes=changes)
    return group


def uses_of_group(group: ResourceGroup) -> dict[type[Model], int]:
    """Return how many rows of each model belong to the group and prevent its deletion."""
    return counted_uses(group, leaving_out=_NO_OBSTACLE)


def delete_group(actor_id: UUID | None, group: ResourceGroup) -> None:
    """Delete an unused group. Raises Conflict that counts its uses."""
    with transaction.atomic():
        used_by = {words_for(model, number): number for model, number in uses_of_group(group).items()}
        if used_by:
            parts = [Message("{number} {kind}", number=number, kind=Message(name)) for name, number in used_by.items()]
            raise Conflict(
                "Resource group {group} still has {text}. Deactivate it instead: nobody can launch there, "
                "and its history stays.",
                group=group.name,
                text=Message.joined(parts, ", "),
                code="resource-group-in-use",
                used_by=used_by,
            )
        audit(actor_id, "resource-group.delete", "resource-group", [group.pk], name=group.name)
        group.delete()


def _write(group: ResourceGroup, values: Mapping[str, Any]) -> ResourceGroup:
    if isinstance(order := values.get("slot_order"), list):
        check_known(map(str, order), field="slot_order", kept=group.slot_order)
    for name, value in values.items():
        if name not in _LISTS:
            setattr(group, name, value)
    try:
        with transaction.atomic():
            group.clean_fields()
            group.save()
    except ValidationError as error:
        field, texts = next(iter(error.message_dict.items()))
        raise UserError(Message.joined(texts), field=field, code="invalid-resource-group") from None
    except IntegrityError:
        text = Message("A resource group {group} already exists.", group=repr(group.name))
        raise Conflict(text, field="name", code="name-taken") from None
    for name in _LISTS:
        if name in values:
            getattr(group, name).set(values[name])
    return group


def _plain(group: ResourceGroup, name: str) -> Any:
    if name in _LISTS:
        return sorted(map(str, getattr(group, name).all()))
    value = getattr(group, name)
    return value if value is None or isinstance(value, bool | int | float | str | list | dict) else str(value)
