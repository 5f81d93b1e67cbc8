"""Saves, deletes and scans registries."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from django.core.exceptions import ValidationError
from django.db import transaction

from backendai.base.core.errors import Conflict, UserError
from backendai.base.core.messages import Message
from backendai.base.wire.broker.hints import hint_on_commit
from backendai.base.wire.broker.queues import CONTROL_QUEUE
from backendai.domain.accounts.models import User
from backendai.domain.activity.changes import delete_object, plain_value
from backendai.domain.activity.jobs import refuse_second, start_job
from backendai.domain.activity.models import BackgroundJob
from backendai.domain.activity.services import audit
from backendai.domain.catalog.models import Registry

SCAN_JOB = "registry.scan"
WAITING = Message("Waiting for a worker.")
_LONGEST_SCAN = timedelta(minutes=30)
_SILENCE = timedelta(minutes=5)


def write_registry(actor_id: UUID | None, registry: Registry, values: Mapping[str, Any]) -> Registry:
    """Save these fields of a new or stored registry, also passwords and ``domains``; return it.

    The audit entry records that a password changed, but not the password. Raises UserError that names the field.
    """
    is_new = registry._state.adding
    changes: dict[str, list[Any]] = {}
    with transaction.atomic():
        for name, value in values.items():
            if name in ("password", "push_password", "domains"):
                continue
            old = None if is_new else plain_value(getattr(registry, name))
            setattr(registry, name, value)
            if old != plain_value(value):
                changes[name] = [old, plain_value(value)]
        if values.get("password") is not None:
            registry.set_password(values["password"])
            changes["password"] = ["…", "…"]
        if values.get("push_password") is not None:
            registry.set_push_password(values["push_password"])
            changes["push_password"] = ["…", "…"]
        _check(registry)
        registry.save()
        if "domains" in values:
            registry.domains.set(values["domains"])
            changes["domains"] = [None, sorted(map(str, values["domains"]))]
        action = f"registry.{'create' if is_new else 'change'}"
        audit(actor_id, action, "registry", [registry.pk], name=registry.name, changes=changes)
    return registry


def delete_registry(actor_id: UUID | None, registry: Registry) -> None:
    """Delete a registry; its images stay in the catalogue. Raises Conflict if it limits images to some domains."""
    if not registry.is_global and registry.images.exists():
        raise Conflict(
            "{count} images are limited to the domains of {registry}: remove them first, or open the registry to all.",
            count=registry.images.count(),
            registry=registry.name,
            code="registry-in-use",
        )
    delete_object(actor_id, registry, "registry")


def start_scan(user: User, registry: Registry, *, now: datetime) -> BackgroundJob:
    """Start a job that scans the registry; return it.

    Raises Conflict while a scan runs, or if the registry is disabled.
    """
    if not registry.is_enabled:
        raise Conflict("Registry {registry} is disabled.", registry=registry.name, code="registry-disabled")
    with transaction.atomic():
        refuse_second(SCAN_JOB, registry.name)
        job = start_job(
            SCAN_JOB,
            registry.name,
            WAITING,
            now=now,
            owner_id=user.pk,
            unit="images",
            silence_limit=_SILENCE,
            longest=_LONGEST_SCAN,
        )
        audit(user.pk, "registry.scan", "registry", [registry.pk], name=registry.name)
        hint_on_commit("controller.scan_registry", str(job.pk), queue=CONTROL_QUEUE)
    return job


def _check(registry: Registry) -> None:
    try:
        registry.full_clean()
    except ValidationError as error:
        field, messages = next(iter(error.message_dict.items()))
        raise UserError(messages[0], field=field, code="invalid-registry") from error
