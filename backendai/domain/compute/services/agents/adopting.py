"""Adopts running kernels whose session is missing in a restored database."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from datetime import datetime
from typing import Any
from uuid import UUID

from django.db import transaction

from backendai.base.core.errors import Conflict, NotAllowed, NotFound
from backendai.base.core.messages import Message
from backendai.base.core.slots import parse_amount
from backendai.domain.accounts.models import Project, User
from backendai.domain.activity.services import audit
from backendai.domain.catalog.models import Image
from backendai.domain.compute.models import (
    ComputeSession,
    Kernel,
    SchedulingRecord,
    SessionMount,
    UnknownKernel,
    history_entry,
)
from backendai.domain.compute.services.agents.manifests import OWN, mounts_of, row_of
from backendai.domain.compute.services.placing.place import Assignment, place_sessions
from backendai.domain.compute.services.requests.mounts import ready_folders
from backendai.domain.compute.status import LIVE, Outcome, Phase, Status


def adopt_session(actor: User, session_id: UUID, *, now: datetime) -> ComputeSession:
    """Place the session of unknown kernels on their agents as SCHEDULED, and return it. The kernels keep running.

    Owner, project and name are restored; variables are lost. Raises NotAllowed unless the actor is a superadmin;
    NotFound; Conflict if a kernel is missing or not running, if owner, project or image is missing, if the session
    exists in another state, or if the agents lack free slots.
    """
    if not actor.is_superadmin:
        raise NotAllowed("Only a superadmin decides about unknown kernels.")
    with transaction.atomic():
        rows = list(UnknownKernel.objects.select_related("agent").filter(session_id=session_id, removal_at=None))
        if not rows:
            raise NotFound("No agent has an unknown kernel of this session.")
        _check_whole(rows)
        session = _session_of(rows[0].manifest, rows, now)
        _check_placed(session, rows, now)
        UnknownKernel.objects.filter(pk__in=[row.pk for row in rows]).delete()
        audit(actor.pk, "session.adopt", "session", [session.pk], name=session.name, owner=session.owner.email)
    session.refresh_from_db()
    return session


def _check_whole(rows: Sequence[UnknownKernel]) -> None:
    size = int(rows[0].manifest["cluster_size"])
    if {row.manifest["rank"] for row in rows} != set(range(size)) or len(rows) != size:
        text = Message(
            "{number} of {size} kernels of this session are here: wait for the other agents, or remove these.",
            number=len(rows),
            size=size,
        )
        raise Conflict(text, code="kernels-missing")
    if stopped := [row.manifest["hostname"] for row in rows if not row.is_running]:
        raise Conflict(
            "Kernel {stopped} of this session does not run: remove it.", stopped=stopped[0], code="kernel-stopped"
        )
    if len({row.agent.resource_group_id for row in rows}) > 1:
        raise Conflict("Its agents are in several resource groups: move them into one.", code="several-groups")


def _session_of(manifest: dict[str, Any], rows: Sequence[UnknownKernel], now: datetime) -> ComputeSession:
    """Return the PENDING session of these kernels, locked; writes the session if it is missing.

    Its kernels get the previous generation, as the placement that follows increments the generation. Raises Conflict if
    the session is not pending or belongs to another resource group.
    """
    session = ComputeSession.objects.select_for_update().filter(pk=manifest["session"]).first()
    if session is None:
        session = _write(manifest, rows, now)
    elif session.status != Status.PENDING or session.resource_group_id != rows[0].agent.resource_group_id:
        raise Conflict(
            "Session {session} is {status} in this database: its kernel here can only be removed.",
            session=session.name,
            status=session.get_status_display(),
            code="session-known",
        )
    for row in rows:
        Kernel.objects.filter(pk=row.kernel_id, session=session).update(generation=row.generation - 1)
    return session


def _write(manifest: dict[str, Any], rows: Sequence[UnknownKernel], now: datetime) -> ComputeSession:
    session = row_of(manifest)
    session.owner = _found(User.objects.filter(email=manifest["owner"], is_active=True), "user", manifest["owner"])
    projects = Project.objects.filter(name=manifest["project"], domain__name=manifest["domain"])
    session.project = _found(projects, "project", manifest["project"])
    images = Image.objects.filter(reference=manifest["image"], architecture=manifest["architecture"])
    session.image = _found(images, "image", manifest["image"])
    session.resource_group = rows[0].agent.resource_group
    session.name = _free_name(session.owner, session.name)
    session.created_at = session.changed_at = now
    mounts = mounts_of(manifest, ready_folders({UUID(one[0]) for one in manifest.get("mounts", ())}))
    session.mount_count = len(mounts)
    session.save(force_insert=True)
    SessionMount.objects.bulk_create(mounts)
    Kernel.objects.bulk_create(
        Kernel(
            pk=row.kernel_id,
            session=session,
            generation=row.generation - 1,
            slots=row.manifest["kernel_slots"],
            image=_own_image(row.manifest),
            **{name: row.manifest["own"][name] for name in OWN if "own" in row.manifest},
            **{name: row.manifest[name] for name in ("rank", "role", "index", "hostname")},
        )
        for row in rows
    )
    message = {"message": Message("Adopted: it ran on when the database was restored.")}
    first = {"phase": Phase.SCHEDULE, "result": Outcome.SUCCESS, "to_status": Status.PENDING} | message
    SchedulingRecord.objects.bulk_create([history_entry(session=session, **first)])
    return session


def _own_image(manifest: dict[str, Any]) -> Image | None:
    """Return the kernel's own image, or None if the kernel uses its session's image. Raises Conflict if the image is
    missing."""
    named = manifest.get("own", {}).get("image")
    if not named:
        return None
    reference, architecture = named
    image: Image = _found(Image.objects.filter(reference=reference, architecture=architecture), "image", reference)
    return image


def _found(rows: Any, kind: str, name: str) -> Any:
    found = rows.first()
    if found is None:
        raise Conflict(
            "The session needs {kind} {name}, which does not exist here: create the {kind} first.",
            kind=kind,
            name=name,
            code="missing",
        )
    return found


def _free_name(owner: User, name: str) -> str:
    taken = ComputeSession.objects.filter(owner=owner, name=name, status__in=LIVE).exists()
    return f"{name[:50]}-adopted-{secrets.token_hex(2)}" if taken else name


def _check_placed(session: ComputeSession, rows: Sequence[UnknownKernel], now: datetime) -> None:
    assignment = Assignment(
        session.pk,
        {row.kernel_id: row.agent_id for row in rows},
        devices={row.kernel_id: _shares(row.manifest["devices"]) for row in rows if row.manifest["devices"]},
    )
    if not place_sessions(session.resource_group_id, [assignment], now=now):
        names = ", ".join(sorted({row.agent.name for row in rows}))
        raise Conflict(
            "The ledger has no room for session {session} on {names}, or a limit of its owner "
            "is reached: end another session there first, and see that the agent is alive and "
            "takes sessions.",
            session=session.name,
            names=names,
            code="no-room",
        )


def _shares(devices: dict[str, dict[str, str]]) -> dict[str, dict[str, int]]:
    return {
        slot: {device: parse_amount(slot, amount, field="devices") for device, amount in of_slot.items()}
        for slot, of_slot in devices.items()
    }
