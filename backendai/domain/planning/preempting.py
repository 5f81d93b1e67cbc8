"""Stops running sessions for pending ones of higher priority, where the resource group allows that."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from django.db.models import Q

from backendai.base.core.durations import describe_duration
from backendai.base.core.messages import Message
from backendai.base.core.session_kinds import kinds_with
from backendai.base.core.slots import Slots, parse_amount
from backendai.base.wire.capabilities import Capability
from backendai.domain.cluster.models import ResourceGroup
from backendai.domain.compute.models import ComputeSession, Kernel
from backendai.domain.compute.reasons import GAVE_WAY
from backendai.domain.compute.services.life.stopping import stop_each
from backendai.domain.compute.services.status.history import Entry, write_history
from backendai.domain.compute.services.status.moves import StatusCause
from backendai.domain.compute.status import Outcome, Phase, Status
from backendai.scheduler.forecasts.world import Held
from backendai.scheduler.plan import Wait
from backendai.scheduler.preemption import Candidate, preempt
from backendai.scheduler.snapshot import Snapshot

MOST_RESUMES = 5  # who was stopped so often does not give way again


def give_way(group: ResourceGroup, snapshot: Snapshot, waits: Sequence[Wait], now: datetime) -> int:
    """Begin to stop the sessions that give way to the first one that waits for room; returns how many. Nothing happens
    while others are being stopped for that. Three queries if someone waits, and a fixed number for each stop."""
    if group.preempt_after is None or not any(wait.tried for wait in waits):
        return 0
    own = ComputeSession.objects.filter(resource_group=group)
    under_way = own.filter(status__in=[Status.STOPPING, Status.STOPPED], status_reason=GAVE_WAY)
    if under_way.filter(owner__is_active=True).exists():  # sessions of others are not resumed, and must not block
        return 0
    waiting = [wait.session_id for wait in waits if wait.tried]
    barred = set(own.filter(pk__in=waiting, stopped_at__isnull=False).values_list("pk", flat=True))
    found = preempt(snapshot, waits, _candidates(group, group.preempt_after, now), barred)
    if found is None:
        return 0
    message = Message(
        "Gave way to a session of priority {priority}: resource group {group} stops sessions of lower priority for "
        "that, after {least}. It is resumed by itself.",
        priority=found.beneficiary.priority,
        group=group.name,
        least=describe_duration(group.preempt_after),
    )
    data = {"beneficiary": str(found.beneficiary.id), "priority": found.beneficiary.priority}
    why = StatusCause(Phase.RUN, GAVE_WAY, message, data, outcome=Outcome.EXPIRED)
    stopped = stop_each([one.id for one in found.victims], lambda _: why, now=now)
    if stopped:
        text = Message("{number} sessions of lower priority are being stopped for it.", number=len(stopped))
        entry = Entry(found.beneficiary.id, Status.PENDING, Outcome.SUCCESS, "others-give-way", text)
        write_history([entry], Phase.SCHEDULE, Status.PENDING, now=now)
    return len(stopped)


def _candidates(group: ResourceGroup, least: timedelta, now: datetime) -> list[Candidate]:
    """Return the running sessions of the group that have run long enough and were not stopped too often. One query."""
    able = Q(session__session_type__in=kinds_with("stops")) | Q(session__may_be_stopped=True)
    kernels = Kernel.objects.filter(
        able,
        session__resource_group=group,
        session__status=Status.RUNNING,
        session__started_at__lte=now - least,
        session__resumes__lt=MOST_RESUMES,
        agent__isnull=False,
    )
    held: dict[UUID, list[Held]] = defaultdict(list)
    columns = (
        "session_id", "session__priority", "session__started_at", "agent_id", "agent__capabilities", "slots", "devices"
    )  # fmt: skip
    rows = list(kernels.order_by("rank").values_list(*columns))
    unable = {row[0] for row in rows if Capability.HOMES not in (row[4] or ())}
    for pk, _, _, agent, _, slots, devices in rows:
        held[pk].append(Held(agent, Slots.parse(slots), shares_of(devices)))
    found = {pk: Candidate(pk, priority, now - began, tuple(held[pk])) for pk, priority, began, *_ in rows}
    return [one for pk, one in found.items() if pk not in unable]


def shares_of(devices: Mapping[str, Mapping[str, str]]) -> dict[str, dict[str, Any]]:
    """Return the stored devices of a kernel as thousandths, by slot and device."""
    return {slot: {pk: parse_amount(slot, part, field=slot) for pk, part in of.items()} for slot, of in devices.items()}
