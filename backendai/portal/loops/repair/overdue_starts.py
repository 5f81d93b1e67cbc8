"""Ends starts that exceed their time limit on a reachable agent: pulling the image (precondition) or creating the
kernel (start).

Only time counts in which the agent could report: after its last return, and while agents could reach the portal.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from django.db.models import Exists, F, OuterRef, Q

from backendai.base.core.durations import describe_duration
from backendai.base.core.messages import Message
from backendai.base.core.session_kinds import kinds_with
from backendai.domain.cluster.models import Agent
from backendai.domain.cluster.services import reachable_since
from backendai.domain.cluster.time_limits import longest_start_of, unpacking_time
from backendai.domain.compute.models import Kernel
from backendai.domain.compute.services.life.ending import end_each
from backendai.domain.compute.services.life.retrying import Expired, expire_restarts, expire_starts, phase_of
from backendai.domain.compute.services.status.moves import StatusCause
from backendai.domain.compute.status import STARTING, Outcome, Status

SLACK = timedelta(seconds=60)  # leaves time for the agent to report its own time-out first
_MOST_AT_ONCE = 1000
_COLUMNS = (
    "pk",
    "session_id",
    "status",
    "hostname",
    "changed_at",
    "agent__name",
    "agent__returned_at",
    "session__resource_group__pull_timeout",
    "longest_start",
    "may_retry",
)


def end_starts(now: datetime) -> int:
    """Order agents to end overdue starts and restarts, at most ``_MOST_AT_ONCE`` of each; returns how many. A session
    whose start is overdue then starts again, or ends with the reason if no retry is left."""
    again: dict[UUID, Expired] = {}
    over: dict[UUID, Expired] = {}
    for one, may_retry in _overdue(now, Q(session__status__in=STARTING)):
        (again if may_retry else over).setdefault(one.session_id, one)
    restarts = [one for one, _ in _overdue(now, Q(session__status=Status.RUNNING))]
    return expire_starts(again.values(), now=now) + _end(over, now) + expire_restarts(restarts, now=now)


def _overdue(now: datetime, of_session: Q) -> Iterator[tuple[Expired, bool]]:
    group, reachable = "session__resource_group", reachable_since(now)
    late = Q(status=Status.PULLING) & _longer(now, reachable, f"{group}__pull_timeout")
    created = Q(_longer(now, reachable, "longest_start"), session__stopped_at=None)
    created |= _longer(now - unpacking_time(), reachable, "longest_start")  # a stored home is unpacked before
    late |= Q(created, status__in=STARTING - {Status.PULLING})
    started_kernels = Kernel.objects.filter(session=OuterRef("session"), started_at__isnull=False)
    left = Q(session__retries__lt=F(f"{group}__max_retries")) & ~Q(
        Exists(started_kernels), session__session_type__in=kinds_with("runs_program")
    )
    timed = Kernel.objects.annotate(longest_start=longest_start_of(group, "agent"))
    kernels = timed.filter(late, of_session, is_held=False, agent__in=Agent.objects.answering())
    for row in kernels.annotate(may_retry=left).order_by("changed_at", "pk").values(*_COLUMNS)[:_MOST_AT_ONCE]:
        yield _expired(row, now, reachable), row["may_retry"]


def _longer(now: datetime, reachable: datetime, limit: str) -> Q:
    """Return a query condition for kernels that have exceeded their limit plus the slack for reporting."""
    begin = now - SLACK - F(limit)
    returned = Q(agent__returned_at=None) | Q(agent__returned_at__lt=begin)
    return Q(returned, changed_at__lt=begin, **{f"{limit}__lt": now - SLACK - reachable})


def _expired(row: dict[str, Any], now: datetime, reachable: datetime) -> Expired:
    pulls = row["status"] == Status.PULLING
    limit = row["session__resource_group__pull_timeout" if pulls else "longest_start"]
    since = max(row["changed_at"], row["agent__returned_at"] or reachable, reachable)
    message = Message(
        "Agent {agent} left {hostname} {status} for {waited}; the limit is {limit}.",
        agent=row["agent__name"],
        hostname=row["hostname"],
        status=Status(row["status"]).label,
        waited=describe_duration(now - since),
        limit=describe_duration(limit),
    )
    code = "pull-timeout" if pulls else "start-timeout"
    return Expired(row["pk"], row["session_id"], phase_of(row["status"]), code, message)


def _end(over: dict[UUID, Expired], now: datetime) -> int:
    ended = 0
    for phase, code in dict.fromkeys((one.phase, one.code) for one in over.values()):
        whys = {
            pk: StatusCause(phase, code, one.message, outcome=Outcome.EXPIRED)
            for pk, one in over.items()
            if (one.phase, one.code) == (phase, code)
        }
        ended += len(end_each(whys, only_from=STARTING, now=now).terminating)
    return ended
