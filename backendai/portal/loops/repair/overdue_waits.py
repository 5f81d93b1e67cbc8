"""Ends the wait of sessions that are pending too long: by time, by failed dependencies, or by number of tries."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from django.db import transaction
from django.db.models import Exists, F, Max, OuterRef, Q, QuerySet, Subquery, Value
from django.db.models.functions import Coalesce, Greatest

from backendai.base.core.durations import describe_duration
from backendai.base.core.messages import Message
from backendai.base.core.session_kinds import kinds_with
from backendai.base.db.bulk import update_returning
from backendai.domain.cluster.models import ResourceGroup
from backendai.domain.compute.models import ComputeSession, SchedulingRecord
from backendai.domain.compute.services.life.ending import cancel_dependents, end_each
from backendai.domain.compute.services.status.history import Entry, write_history
from backendai.domain.compute.services.status.moves import StatusCause, touch
from backendai.domain.compute.status import LIVE, Outcome, Phase, Status

GIVEN_UP, LOWERED = "gave-up-scheduling", "priority-lowered"
PRIORITY_STEP = 10
_MOST_AT_ONCE = 1000
_GROUP = "resource_group__"


def cancel_unfulfillable(now: datetime) -> int:
    """Cancel sessions with a dependency that ended otherwise than required; returns how many. Sessions that depend on a
    cancelled one are cancelled, too."""
    return len(cancel_dependents(now=now))


def cancel_of_deactivated(now: datetime) -> int:
    """Cancel pending sessions of people who are deactivated, at most ``_MOST_AT_ONCE``; returns how many. Replicas end
    with their endpoints.
    """
    left = ComputeSession.objects.pending().filter(owner__is_active=False)
    left = left.exclude(session_type__in=kinds_with("is_served"))
    text = Message("Its owner is deactivated.")
    cause = StatusCause(Phase.SWEEP, "owner-inactive", text, outcome=Outcome.EXPIRED)
    whys = {pk: cause for pk in left.order_by("created_at", "pk").values_list("pk", flat=True)[:_MOST_AT_ONCE]}
    return len(end_each(whys, only_from=[Status.PENDING], now=now).cancelled) if whys else 0


def sweep_pending(now: datetime) -> int:
    """Cancel sessions that have been pending longer than their group allows; returns how many.

    The wait begins at the launch or at the return after a failed start, but not before the requested start time and the
    end of all dependencies.
    """
    start = now - F("resource_group__pending_timeout")
    free = ComputeSession.objects.pending().exclude(pk__in=_HELD_BY_OTHERS)
    waited = free.filter(
        Q(starts_at=None) | Q(starts_at__lt=start),
        created_at__lt=start,
        changed_at__lt=start,
        resource_group__pending_timeout__gt=timedelta(0),
    ).annotate(freed_at=Max("depends_on__ended_at"))
    moments = ("created_at", "changed_at", "starts_at", "freed_at")
    columns = (f"{_GROUP}name", f"{_GROUP}pending_timeout", "attempts", "status_message")
    whys = {}
    rows = waited.order_by("created_at", "pk").values_list("pk", *columns, *moments)
    for pk, group, limit, attempts, reason, *began in rows[:_MOST_AT_ONCE]:
        wait = now - max(moment for moment in began if moment)
        if wait > limit:
            whys[pk] = _waited_too_long(wait, group, limit, attempts, reason)
    return len(end_each(whys, only_from=[Status.PENDING], now=now).cancelled)


_HELD_BY_OTHERS = ComputeSession.depends_on.through.objects.filter(to_computesession__status__in=LIVE).values(
    "from_computesession"
)


def _waited_too_long(wait: timedelta, group: str, limit: timedelta, attempts: int, reason: str) -> StatusCause:
    message = Message(
        "Pending for {wait}; resource group {group} allows {limit}. Scheduling was attempted {attempts} "
        "times. {reason}",
        wait=describe_duration(wait),
        group=group,
        limit=describe_duration(limit),
        attempts=attempts,
        reason=reason,
    )
    data = {
        "waited_seconds": round(wait.total_seconds()),
        "limit_seconds": round(limit.total_seconds()),
        "attempts": attempts,
    }
    return StatusCause(Phase.SWEEP, "pending-timeout", message.strip(), data, outcome=Outcome.EXPIRED)


def give_up_scheduling(now: datetime) -> int:
    """Apply the group's rule to sessions with too many tries, at most ``_MOST_AT_ONCE`` for each rule; returns how
    many. The rule records the tries, lowers the priority, or cancels the session."""
    tired = ComputeSession.objects.pending().filter(
        resource_group__give_up_after__gt=0, attempts__gte=F("resource_group__give_up_after")
    )
    if not tired.exists():  # the usual case
        return 0
    keep, lower, cancel = ResourceGroup.GiveUp.KEEP, ResourceGroup.GiveUp.LOWER, ResourceGroup.GiveUp.CANCEL
    lowered = _lower(tired.filter(resource_group__on_give_up=lower, priority__gt=0), now)
    kept = _say(tired.filter(Q(resource_group__on_give_up=keep) | Q(resource_group__on_give_up=lower, priority=0)), now)
    return lowered + kept + _cancel(tired.filter(resource_group__on_give_up=cancel), now)


@dataclass(frozen=True, slots=True)
class _OverdueSession:
    id: UUID
    priority: int
    attempts: int
    reason: str
    group: str
    limit: int

    @property
    def tries(self) -> str:
        """Part of a sentence with the session's number of tries and the group's limit."""
        return Message(
            "attempted {attempts} times (resource group {group} gives up after {limit})",
            attempts=self.attempts,
            group=self.group,
            limit=self.limit,
        )


def _tired(sessions: QuerySet[Any]) -> list[_OverdueSession]:
    columns = ("pk", "priority", "attempts", "status_message", f"{_GROUP}name", f"{_GROUP}give_up_after")
    return [
        _OverdueSession(*row) for row in sessions.order_by("created_at", "pk").values_list(*columns)[:_MOST_AT_ONCE]
    ]


def _lower(sessions: QuerySet[Any], now: datetime) -> int:
    tired = {one.id: one for one in _tired(sessions)}
    if not tired:
        return 0
    changes = {"priority": Greatest(F("priority") - PRIORITY_STEP, Value(0)), "attempts": 0}
    with transaction.atomic():
        # The number of tries is reset, so a concurrent pass does not lower the priority again.
        limit = ResourceGroup.objects.filter(pk=OuterRef("resource_group_id")).values("give_up_after")
        still = ComputeSession.objects.pending().filter(pk__in=tired, priority__gt=0, attempts__gte=Subquery(limit))
        rows = update_returning(still, changes, ("id", "priority"))
        lowered = {UUID(str(pk)): priority for pk, priority in rows}
        texts = {
            pk: Message(
                "Scheduling was {tries}; its priority goes from {priority} to {lowered}. {reason}",
                tries=one.tries,
                priority=one.priority,
                lowered=lowered[pk],
                reason=one.reason,
            )
            for pk, one in tired.items()
            if pk in lowered
        }
        _write(texts, LOWERED, now)
        touch(list(lowered))
    return len(lowered)


def _say(sessions: QuerySet[Any], now: datetime) -> int:
    noted = SchedulingRecord.objects.filter(
        session=OuterRef("pk"),
        result=Outcome.GIVE_UP,
        error_code=GIVEN_UP,
        created_at__gte=Coalesce(OuterRef("scheduled_at"), OuterRef("created_at")),
    )
    unnoted = sessions.filter(~Exists(noted))
    candidates = [one.id for one in _tired(unnoted)]
    if not candidates:
        return 0
    with transaction.atomic():
        touch(candidates)  # locks the sessions: a concurrent pass waits here, then finds the rows of this one
        texts = {
            one.id: Message(
                "Scheduling was {tries}. It is tried again anyway, with priority {priority}. {reason}",
                tries=one.tries,
                priority=one.priority,
                reason=one.reason,
            )
            for one in _tired(unnoted.filter(pk__in=candidates))
        }
        _write(texts, GIVEN_UP, now)
    return len(texts)


def _cancel(sessions: QuerySet[Any], now: datetime) -> int:
    whys = {}
    for one in _tired(sessions):
        data = {"attempts": one.attempts, "limit": one.limit}
        message = Message.joined([Message("Scheduling was {tries} without success.", tries=one.tries), one.reason])
        whys[one.id] = StatusCause(Phase.SCHEDULE, GIVEN_UP, message, data, outcome=Outcome.GIVE_UP)
    return len(end_each(whys, only_from=[Status.PENDING], now=now).cancelled)


def _write(texts: Mapping[UUID, str], code: str, now: datetime) -> None:
    entries: Sequence[Entry] = [
        Entry(pk, Status.PENDING, Outcome.GIVE_UP, code, text.strip()) for pk, text in texts.items()
    ]
    write_history(entries, Phase.SCHEDULE, Status.PENDING, now=now)
