"""Launches many sessions that differ only in name and variables. They are validated once and written in few
statements."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from uuid import UUID

from backendai.base.wire.broker.hints import hint_on_commit
from backendai.base.wire.broker.queues import CONTROL_QUEUE
from backendai.base.wire.browser import SessionEvent, publish_on_commit
from backendai.domain.accounts.models import User
from backendai.domain.compute.models import ComputeSession, Kernel
from backendai.domain.compute.services.launching.create import kernels_of, session_row
from backendai.domain.compute.services.requests.check import Checked
from backendai.domain.compute.services.requests.limits import check_pending
from backendai.domain.compute.services.requests.mounts import take_mounts, write_mounts
from backendai.domain.compute.services.requests.session_files import write_files
from backendai.domain.compute.services.status.history import Entry, write_history
from backendai.domain.compute.spec import SessionSpec
from backendai.domain.compute.status import LIVE, Phase, Status


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
