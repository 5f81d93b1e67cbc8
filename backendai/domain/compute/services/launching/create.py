"""Launches compute sessions: validates everything, then writes it in one transaction."""

from __future__ import annotations

import secrets
import shutil
import uuid
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, NamedTuple
from uuid import UUID

from django.conf import settings
from django.db import IntegrityError, connection, transaction

from backendai.base.core.errors import Conflict, KeyReused, StorageFull, UserError
from backendai.base.core.messages import Message
from backendai.base.core.names import check_session_name
from backendai.base.core.slots import format_size
from backendai.base.wire.broker.hints import hint_on_commit
from backendai.base.wire.broker.queues import CONTROL_QUEUE
from backendai.base.wire.browser import SessionEvent, publish_on_commit
from backendai.domain.accounts.acting import both_names, owner_named
from backendai.domain.accounts.models import User
from backendai.domain.activity.services import audit
from backendai.domain.catalog.models import Image
from backendai.domain.compute.models import ComputeSession, Kernel, SchedulingRecord, history_entry
from backendai.domain.compute.services.notices.owners import note_launch
from backendai.domain.compute.services.requests.check import Checked, check_spec
from backendai.domain.compute.services.requests.limits import check_pending, check_system_sessions
from backendai.domain.compute.services.requests.mounts import take_mounts, write_mounts
from backendai.domain.compute.services.requests.roles import CheckedRole
from backendai.domain.compute.services.requests.session_files import write_files
from backendai.domain.compute.services.status.history import Entry, write_history
from backendai.domain.compute.spec import SessionSpec
from backendai.domain.compute.spec_document import digest_of, kept_document
from backendai.domain.compute.status import LIVE, Outcome, Phase, Status, When


def check_disk() -> None:
    """Raise StorageFull if less than the reserve is free. On PostgreSQL nothing is checked."""
    if connection.vendor != "sqlite" or not settings.DISK_RESERVE:
        return
    free = shutil.disk_usage(Path(connection.settings_dict["NAME"]).parent).free
    if free < settings.DISK_RESERVE:
        raise StorageFull(
            "The portal's disk has {left} left, and launches need {needed}. Its administrators must free space.",
            left=format_size(free),
            needed=format_size(settings.DISK_RESERVE),
            free=free,
            reserve=settings.DISK_RESERVE,
        )


MOST_AT_ONCE = 16


class Launched(NamedTuple):
    """A session, and its kernels by rank; ``kernels`` is None if an earlier request launched the session."""

    session: ComputeSession
    kernels: list[Kernel] | None


def create_session(user: User, spec: SessionSpec, *, idempotency_key: str | None = None) -> ComputeSession:
    """Launch a session as ``launch_session`` does, with the same errors, but return only the session."""
    return launch_session(user, spec, idempotency_key=idempotency_key).session


def launch_session(user: User, spec: SessionSpec, *, idempotency_key: str | None = None) -> Launched:
    """Write and return a PENDING session with its kernels. If an earlier request with this idempotency key launched a
    session, return that session.

    The session belongs to the owner named in the request, by default the user. On any error nothing is written. Raises
    UserError (with field, number and limit); NotFound for an owner for whom the user may not act; Conflict if the name
    is taken, a limit of pending sessions is reached, or the key belongs to another request; StorageFull.
    """
    owner = owner_named(user, spec.owner, is_launch=True)
    if idempotency_key and (earlier := _earlier(owner, spec, idempotency_key)):
        return Launched(earlier, None)
    check_disk()
    checked = check_spec(owner, spec, actor=user)
    name = spec.name or _generated_name(checked.image)
    try:
        with transaction.atomic():
            launched = _write(owner, user, spec, checked, name, idempotency_key)
            # Last, so that its locks are held only until the commit.
            check_pending(checked.limited, owner.pk) if launched.session.kind.counts else check_system_sessions(owner)
            hint_on_commit("controller.schedule_group", checked.group.pk, queue=CONTROL_QUEUE)
    except IntegrityError as error:
        if idempotency_key and (earlier := _earlier(owner, spec, idempotency_key)):
            return Launched(earlier, None)
        raise _taken(owner, user, name) from error
    return launched


def check_launch(user: User, spec: SessionSpec, count: int = 1) -> Checked:
    """Return the validated request; writes nothing. Raises the errors of a launch, except for limits of pending
    sessions and a full disk."""
    _check_count(count)
    owner = owner_named(user, spec.owner)
    checked = check_spec(owner, spec, actor=user)
    check_names(owner, user, spec.name, count)
    return checked


def check_names(owner: User, actor: User, name: str, count: int = 1) -> None:
    """Check the name for ``count`` new sessions. Raises UserError if it is invalid, and Conflict if a live session of
    the owner has it. With a ``count`` above 1, the names are ``name-1``, ``name-2`` and so on."""
    names = [each for each in _names(name, count) if each]
    for each in names[-1:]:  # the longest name
        check_session_name(each)
    if not names:
        return
    other = ComputeSession.objects.filter(owner=owner, name__in=names, status__in=LIVE).order_by("created_at").first()
    if other is not None:
        raise _taken(owner, actor, other.name)


def launch_many(user: User, spec: SessionSpec, count: int, *, idempotency_key: str | None = None) -> list[Launched]:
    """Launch ``count`` equal sessions, all or none, and return them. Names of several sessions are numbered. Raises the
    errors of a launch."""
    _check_count(count)
    if count == 1:
        return [launch_session(user, spec, idempotency_key=idempotency_key)]
    # The same key gives the same id, as the id is part of the comparison of two requests.
    launch_id = uuid.uuid5(user.pk, idempotency_key) if idempotency_key else uuid.uuid4()
    spec = replace(spec, launch_id=spec.launch_id or launch_id)
    with transaction.atomic():
        return [
            launch_session(
                user,
                replace(spec, name=name),
                idempotency_key=f"{idempotency_key[:120]}-{number}" if idempotency_key else None,
            )
            for number, name in enumerate(_names(spec.name, count), 1)
        ]


def _check_count(count: int) -> None:
    if not 1 <= count <= MOST_AT_ONCE:
        raise UserError(
            "Choose 1 to {most_at_once} sessions.", most_at_once=MOST_AT_ONCE, field="count", code="invalid-count"
        )


def _names(name: str, count: int) -> list[str]:
    return [f"{name}-{number}" if name and count > 1 else name for number in range(1, count + 1)]


def _earlier(owner: User, spec: SessionSpec, key: str) -> ComputeSession | None:
    found: ComputeSession | None = ComputeSession.objects.filter(owner=owner, idempotency_key=key[:128]).first()
    # Sessions of releases before documents have other digests, so only the key is compared.
    if found and found.spec and found.request_digest != digest_of(spec):
        raise KeyReused(
            "This idempotency key belongs to another request, which created session {found}.",
            found=repr(found.name),
            session=str(found.pk),
        )
    return found


def _generated_name(image: Image) -> str:
    """Return a session name from the image's name (for a saved image, its title) and random digits."""
    named_after = image.title if image.is_customized else image.name
    letters = "".join(letter if letter.isascii() and letter.isalnum() else "-" for letter in named_after)
    stem = letters.strip("-")[:40] or "session"
    return f"{stem}-{secrets.token_hex(3)}"


def _write(owner: User, actor: User, asked: SessionSpec, checked: Checked, name: str, key: str | None) -> Launched:
    names, mounts = both_names(actor, owner), take_mounts(checked.all_mounts)
    by = {"launched_by": actor if names else None, "mount_count": len(mounts)}
    session = session_row(owner, asked, checked, name, **by, **_marks_of(asked, key))
    session.save(force_insert=True)
    kernels = Kernel.objects.bulk_create(kernels_of(session, checked.roles))
    _write_dependencies(session.pk, checked.depends_on)
    write_files(session.pk, asked.files)
    write_mounts(session, mounts)
    _record(session, actor, names)
    return Launched(session, kernels)


def session_row(owner: User, asked: SessionSpec, checked: Checked, name: str, **columns: Any) -> ComputeSession:
    """Return the unsaved row of a new session."""
    spec, alike = checked.spec, len({role.slots for role in checked.roles}) == 1
    own: dict[str, Any] = {"launch_id": spec.launch_id or uuid.uuid4()} | columns
    return ComputeSession(
        name=name,
        owner=owner,
        project=checked.project,
        resource_group=checked.group,
        image=checked.image,
        image_digest=checked.image.digest,
        access_key=checked.access_key,
        session_type=spec.session_type,
        priority=checked.priority,
        slots=checked.slots.to_json(),
        total_slots=None if alike else checked.total.to_json(),
        shm_bytes=checked.roles[0].shm_bytes,
        cluster_size=spec.cluster_size,
        cluster_mode=spec.cluster_mode,
        environ=dict(spec.environ),
        startup_command=spec.startup_command,
        file_bytes=sum(file.size + len(file.path.encode()) for file in spec.files),
        preopen_ports=list(spec.preopen_ports),
        starts_at=spec.starts_at,
        batch_timeout=spec.batch_timeout,
        designated_agents=checked.agents,
        placement=spec.placement,
        retry_on_agent_loss=spec.retry_on_agent_loss,
        may_be_stopped=spec.may_be_stopped,
        done_when=spec.done_when,
        depends_when=spec.depends_when or When.SUCCESS,
        spec=kept_document(asked),
        start_in=checked.start_in,
        labels=dict(spec.labels),
        note=spec.note,
        **own,
    )


def _marks_of(asked: SessionSpec, key: str | None) -> dict[str, Any]:
    """Return the columns by which a repeated request is recognised; empty without an idempotency key."""
    return {"idempotency_key": key[:128], "request_digest": digest_of(asked)} if key else {}


def _record(session: ComputeSession, actor: User, names: Mapping[str, str]) -> None:
    """Write the first history row and the audit entry, and inform the owner. Browsers are informed after commit."""
    message = "Launched by {actor} for {owner}.".format(**names) if names else ""
    first = {"phase": Phase.SCHEDULE, "result": Outcome.SUCCESS, "to_status": Status.PENDING, "message": message}
    SchedulingRecord.objects.bulk_create([history_entry(session=session, **first)])
    details = {"name": session.name, "image": session.image.name, "slots": session.slots, **names}
    audit(actor.pk, "session.create", "session", [session.pk], **details)
    note_launch(session)
    publish_on_commit([SessionEvent(str(session.pk), str(session.owner_id), session.status, 0)])


def kernels_of(session: ComputeSession, roles: Sequence[CheckedRole]) -> list[Kernel]:
    """Return the unsaved kernels of a new session."""
    places = [(role, index) for role in roles for index in range(1, role.count + 1)]
    return [_kernel(session, rank, role, index) for rank, (role, index) in enumerate(places)]


def _kernel(session: ComputeSession, rank: int, role: CheckedRole, index: int) -> Kernel:
    own_image = role.image if role.image.pk != session.image_id else None
    return Kernel(
        session=session,
        rank=rank,
        role=role.name,
        index=index,
        hostname=f"{role.name}{index}",
        slots=role.slots.to_json(),
        image=own_image,
        image_digest=own_image.digest if own_image else "",
        shm_bytes=role.shm_bytes if role.shm_bytes != session.shm_bytes else None,
        environ=dict(role.environ),
        startup_command=role.startup_command,
        on_failure=role.on_failure,
        after=list(role.after),
        is_held=bool(role.after),
        ready=dict(role.ready),
    )


def _write_dependencies(session_id: UUID, depends_on: Sequence[UUID]) -> None:
    rows = ComputeSession.depends_on.through
    rows.objects.bulk_create(
        rows(from_computesession_id=session_id, to_computesession_id=other) for other in depends_on
    )


def _taken(owner: User, actor: User, name: str) -> Conflict:
    other: Any = ComputeSession.objects.filter(owner=owner, name=name, status__in=LIVE).first()
    if other is None:
        return Conflict("Another request was faster; try again.", code="conflict")
    who = Message("You already have") if actor.pk == owner.pk else Message("{owner} already has", owner=owner.email)
    return Conflict(
        "{who} a session named {name} ({status}); terminate it or choose another name.",
        who=who,
        name=repr(name),
        status=other.get_status_display(),
        field="name",
        code="name-taken",
        session=str(other.pk),
    )


@dataclass(frozen=True, slots=True)
class SessionVariant:
    """The own values of one of the sessions: id, name and variables. Reserved variable names are allowed."""

    session_id: UUID
    name: str
    environ: Mapping[str, str]


def launch_alike(
    owner: User, spec: SessionSpec, checked: Checked, variants: Sequence[SessionVariant], *, run_id: UUID, now: datetime
) -> list[ComputeSession]:
    """Write and return a PENDING session for each of ``variants``, in the caller's transaction. All get the run's id as
    launch id.

    Each is a microsecond younger than the one before, so that they start in the order of ``variants``: the queue orders
    by age, and ids are random. No session gets an audit entry or a notification of its own. The number of statements
    grows only with mounts and files. Raises Conflict above a limit of pending sessions; IntegrityError if a name is
    taken.
    """
    mounts = take_mounts(checked.all_mounts)
    more = {"run_id": run_id, "launch_id": run_id, "mount_count": len(mounts), "changed_at": now}
    sessions = []
    for place, variant in enumerate(variants):
        own = more | {"id": variant.session_id, "created_at": now + place * timedelta.resolution}
        row = session_row(owner, replace(spec, name=variant.name), checked, variant.name, **own)
        row.environ = {**row.environ, **variant.environ}
        sessions.append(row)
    ComputeSession.objects.bulk_create(sessions)
    Kernel.objects.bulk_create([kernel for one in sessions for kernel in kernels_of(one, checked.roles)])
    for one in sessions:
        if mounts:
            write_mounts(one, mounts)
        if spec.files:
            write_files(one.pk, spec.files)
    write_history([Entry(one.pk, "") for one in sessions], Phase.SCHEDULE, Status.PENDING, now=now)
    check_pending(checked.limited, owner.pk)
    publish_on_commit([SessionEvent(str(one.pk), str(owner.pk), one.status, 0) for one in sessions])
    hint_on_commit("controller.schedule_group", checked.group.pk, queue=CONTROL_QUEUE)
    return sessions


def taken_names(owner: User, names: Collection[str]) -> set[str]:
    """Return which of these names are used by live sessions of the owner."""
    rows = ComputeSession.objects.filter(owner=owner, name__in=list(names), status__in=LIVE)
    return set(rows.order_by().values_list("name", flat=True))
