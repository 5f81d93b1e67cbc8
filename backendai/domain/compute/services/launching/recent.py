"""Stores recent launches of the launch form, so that they can be repeated.

Only launches by the form are stored: a script knows its parameters, and its many launches would displace the user's
own.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime
from typing import Any
from uuid import UUID

from django.db import transaction

from backendai.base.core.errors import Conflict, NotFound
from backendai.base.core.names import check_session_name
from backendai.domain.accounts.models import User
from backendai.domain.activity.services import audit
from backendai.domain.compute.models import ComputeSession, LaunchRecord
from backendai.domain.compute.services.launching.create import Launched, launch_many
from backendai.domain.compute.services.requests.scheduling import USUAL_PRIORITY
from backendai.domain.compute.spec import SessionSpec
from backendai.domain.compute.spec_document import USUAL, VERSION, kept_document

KEPT = 5
MOST_PINNED = 20
# Keys of a request that belong to one launch, or that the columns of its session say more exactly.
_OF_ONE_LAUNCH = frozenset(
    {"version", "name", "owner", "access_key", "launch_id", "starts_at", "files", "depends_on", "depends_when", "retry"}
)


def launch_and_remember(
    user: User, spec: SessionSpec, count: int = 1, *, idempotency_key: str | None = None, now: datetime
) -> list[Launched]:
    """Launch as ``launch_many`` does, and store the request as a recent launch in the same transaction. A repeated
    request is stored once."""
    with transaction.atomic():
        launched = launch_many(user, spec, count, idempotency_key=idempotency_key)
        if launched[0].kernels is not None:
            session = launched[0].session
            more: dict[str, Any] = {} if session.owner_id == user.pk else {"owner": str(session.owner_id)}
            if count > 1:
                more["count"] = count
            if spec.files:  # only names, as contents of files are stored with the session
                more["files_of"] = str(session.pk)
            if spec.preset:
                more["resources"] = session.slots  # for launches after the preset was deleted
            remember(user, spec, spec.name or session.name, more, now=now)
    return launched


def remember(user: User, spec: SessionSpec, name: str, more: Mapping[str, Any], *, now: datetime) -> None:
    """Store a request as the user's newest recent launch. ``more``: values of the form that are not part of the
    request."""
    LaunchRecord.objects.create(owner=user, name=name, parameters={**kept_parameters(spec), **more}, created_at=now)
    _delete_old(user)


def kept_parameters(spec: SessionSpec) -> dict[str, Any]:
    """Return a request as a document for repeating it, without owner and launch id."""
    return kept_document(replace(spec, owner="", launch_id=None))


def parameters_of(session: ComputeSession) -> dict[str, Any]:
    """Return a document for launching another session like this one. The document contains all variables, so only the
    owner may see it."""
    values = {
        "image": session.image.name,
        "type": session.session_type,
        "resources": session.slots,
        "resource_group": session.resource_group.name,
        "project": str(session.project_id),
        "environ": {name: value for name, value in session.environ.items() if not name.startswith("BACKENDAI_")},
        "startup_command": session.startup_command,
        "preopen_ports": session.preopen_ports,
        "cluster_size": session.cluster_size,
        "cluster_mode": session.cluster_mode,
        "priority": None if session.priority == USUAL_PRIORITY else session.priority,
        "batch_timeout": session.batch_timeout.total_seconds() if session.batch_timeout else None,
        "retry_on_agent_loss": session.retry_on_agent_loss,
        "may_be_stopped": session.may_be_stopped,
        "labels": session.labels,
        "note": session.note,
        **_mounts_of(session),
    }
    as_requested = session.spec.keys() - values.keys() - _OF_ONE_LAUNCH
    as_requested |= (
        {"mounts", "start_in"} & session.spec.keys() if "template" in session.spec else set()
    )  # for its locks
    asked = {name: session.spec[name] for name in session.spec if name in as_requested}
    return {"version": VERSION, **{name: value for name, value in values.items() if not _usual(name, value)}, **asked}


def _mounts_of(session: ComputeSession) -> dict[str, Any]:
    """Return the requested mounts of all kernels; automatic ones are added at each launch."""
    mounts = list(session.mounts.filter(is_automatic=False, holds_homes=False, role="")) if session.mount_count else []
    values = [
        {
            "folder": str(one.folder_id or one.folder_name),
            "path": one.sub_path,
            "target": one.target,
            "rights": one.rights,
        }
        for one in mounts
    ]
    return {"mounts": values, "start_in": session.start_in or session.spec.get("start_in", "") if values else ""}


def recent_launches(user: User) -> list[LaunchRecord]:
    """Return the user's recent launches, pinned ones first, then the newest."""
    return list(LaunchRecord.objects.visible_to(user))


def recent_launch(user: User, record_id: UUID) -> LaunchRecord:
    """Return one of the user's recent launches. Raises NotFound if it does not exist or belongs to another user."""
    found: LaunchRecord | None = LaunchRecord.objects.visible_to(user).filter(pk=record_id).first()
    if found is None:
        raise NotFound("Launch not found in your recent history.")
    return found


def rename_launch(user: User, record: LaunchRecord, name: str) -> None:
    """Rename a recent launch. The next session launched from it gets this name. Raises the UserErrors of session
    names."""
    check_session_name(name)
    if name == record.name:
        return
    with transaction.atomic():
        audit(user.pk, "recent-launch.change", "recent-launch", [record.pk], changes={"name": [record.name, name]})
        record.name = name
        record.parameters = record.parameters | {"name": name}
        record.save(update_fields=["name", "parameters"])


def pin_launch(user: User, record: LaunchRecord, pinned: bool) -> None:
    """Pin or unpin a recent launch. An unpinned launch is kept at least until the next launch. Raises Conflict if too
    many are pinned."""
    if pinned == record.is_pinned:
        return
    if pinned and LaunchRecord.objects.visible_to(user).filter(is_pinned=True).count() >= MOST_PINNED:
        raise Conflict(
            "You have pinned {most_pinned} launches already; unpin one.",
            most_pinned=MOST_PINNED,
            code="too-many-pinned",
        )
    with transaction.atomic():
        audit(user.pk, "recent-launch.change", "recent-launch", [record.pk], changes={"pinned": [not pinned, pinned]})
        record.is_pinned = pinned
        record.save(update_fields=["is_pinned"])


def delete_launch(user: User, record: LaunchRecord) -> None:
    """Delete a recent launch; its sessions are kept."""
    with transaction.atomic():
        audit(user.pk, "recent-launch.delete", "recent-launch", [record.pk], name=record.name)
        record.delete()


def _usual(name: str, value: Any) -> bool:
    return value in (None, "", (), [], {}) or value == USUAL[name]


def _delete_old(user: User) -> None:
    """Delete the user's unpinned entries beyond the newest ``KEPT``. Skips rows that a concurrent launch has locked."""
    loose = LaunchRecord.objects.filter(owner=user, is_pinned=False).order_by("-created_at", "-id")
    if old := list(loose.values_list("pk", flat=True)[KEPT:]):
        free = LaunchRecord.objects.select_for_update(skip_locked=True).filter(pk__in=old, is_pinned=False)
        LaunchRecord.objects.filter(pk__in=[record.pk for record in free]).delete()
