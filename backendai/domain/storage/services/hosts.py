"""Saves and deletes storage hosts, for superadmins and the first start."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit
from uuid import UUID

from django.core.exceptions import ValidationError
from django.db import IntegrityError, transaction

from backendai.base.core.errors import Conflict, UserError
from backendai.base.core.messages import Message
from backendai.domain.activity.changes import plain_value
from backendai.domain.activity.services import audit
from backendai.domain.storage.models import Folder, StorageHost
from backendai.domain.storage.status import FolderStatus

FIELDS = ("name", "title", "address", "public_address", "is_enabled", "is_default")


def write_host(actor_id: UUID | None, host: StorageHost, values: Mapping[str, Any]) -> StorageHost:
    """Save these fields of a new or stored storage host, and return it. A new default replaces the old one. Raises a
    UserError that names the field."""
    is_new = host._state.adding
    old = {} if is_new else {name: plain_value(getattr(host, name)) for name in values}
    if not is_new and values.get("name", host.name) != host.name:
        raise UserError(
            "The name of a storage host cannot change: agents map it to their paths.", field="name", code="name-stays"
        )
    for name in values.keys() & set(FIELDS):
        setattr(host, name, values[name])
    _check(host)
    new = {name: plain_value(getattr(host, name)) for name in values}
    changes = {name: [old.get(name), value] for name, value in new.items() if old.get(name) != value}
    try:
        with transaction.atomic():
            if host.is_default:
                StorageHost.objects.filter(is_default=True).exclude(pk=host.pk).update(is_default=False)
            host.save()
            if changes:
                action = f"storage-host.{'create' if is_new else 'change'}"
                audit(actor_id, action, "storage-host", [host.pk], name=host.name, changes=changes)
    except IntegrityError as error:
        text = Message("A storage host named {host} already exists.", host=repr(host.name))
        raise Conflict(text, field="name", code="name-taken") from error
    return host


def delete_host(actor_id: UUID | None, host: StorageHost) -> None:
    """Delete a storage host without folders, with what agents say of it; its files stay. Raises a Conflict that counts
    its folders."""
    with transaction.atomic():
        folders = Folder.objects.filter(host=host)
        number = folders.exclude(status=FolderStatus.DELETED).count()
        if number:
            text = Message(
                "Folders on this storage host: {number}. Purge them first.",
                number=number,
            )
            raise Conflict(text, code="storage-host-in-use", folders=number)
        folders.delete()
        audit(actor_id, "storage-host.delete", "storage-host", [host.pk], name=host.name)
        host.delete()


def _check(host: StorageHost) -> None:
    for field in ("address", "public_address"):
        value = getattr(host, field)
        parts = urlsplit(value)
        if (value or field == "address") and (parts.scheme not in ("http", "https") or not parts.hostname):
            raise UserError("Enter it as http://host:port.", field=field, code="invalid-address")
    try:
        host.clean_fields()
    except ValidationError as error:
        field, texts = next(iter(error.message_dict.items()))
        raise UserError(texts[0], field=field, code="invalid") from error
