"""Replays a resource group's own sessions under its rules and under others, as a background job."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import datetime, timedelta
from itertools import islice
from typing import Any
from uuid import UUID, uuid4

from django.db import transaction

from backendai.base.core.errors import UserError
from backendai.base.core.messages import Message
from backendai.base.core.slots import Slots
from backendai.base.wire.broker.hints import hint_on_commit
from backendai.base.wire.broker.queues import CONTROL_QUEUE
from backendai.domain.accounts.models import User
from backendai.domain.activity.jobs import finish_job, refuse_second, report_progress, start_job, stop_job
from backendai.domain.activity.models import BackgroundJob
from backendai.domain.activity.services import audit
from backendai.domain.cluster.models import ResourceGroup
from backendai.domain.cluster.slot_types import check_known
from backendai.domain.compute.models import ComputeSession
from backendai.domain.forecasts.traces import own_jobs
from backendai.domain.planning.snapshot import read_snapshot
from backendai.scheduler.forecasts.replay import Job, Outcome, parts_of, replay
from backendai.scheduler.snapshot import AgentView, Rules

WHAT_IF_JOB = "group.what-if"
MOST_DAYS, MOST_SESSIONS, MOST_ADDED, COLUMNS = 90, 20_000, 1_000, 60
LONGEST = timedelta(minutes=20)
_MOST_AGENTS, _MOST_MOVED = 10_000, 10
_EVERY = timedelta(seconds=1)  # between two reports of progress


class _Cancelled(Exception):
    """The job was cancelled, or has ended."""


@dataclass(frozen=True, slots=True)
class WhatIf:
    """What is tried on the sessions of the last ``days``: a sequence, backfill, and ``added`` agents
    (``2 x cpu=32,mem=128g``; empty: none)."""

    days: int
    sequence: str
    backfill: bool
    added: str = ""


def start_what_if(user: User, group: ResourceGroup, what: WhatIf, *, now: datetime) -> BackgroundJob:
    """Start a job that compares; return it. Raises UserError for wrong agents; Conflict while one runs for the
    group."""
    check_known({slot for agent in added_agents(what.added, MOST_ADDED) for slot in agent.capacity}, field="added")
    with transaction.atomic():
        refuse_second(WHAT_IF_JOB, group.name)
        job = start_job(
            WHAT_IF_JOB, group.name, Message("Waits for its turn."), now=now, owner_id=user.pk, longest=LONGEST
        )
        BackgroundJob.objects.filter(pk=job.pk).update(result={"what": asdict(what)})
        audit(user.pk, "group.what-if", "group", [group.pk], name=group.name, **asdict(what))
        hint_on_commit("controller.run_what_if", str(job.pk), queue=CONTROL_QUEUE)
    return job


def waiting_what_ifs() -> list[UUID]:
    """Return the jobs that no worker has started, the oldest first."""
    jobs = BackgroundJob.objects.running().filter(kind=WHAT_IF_JOB, claimed_at=None).order_by("created_at")
    return list(jobs.values_list("pk", flat=True))


def run_what_if(job_id: UUID, clock: Callable[[], datetime]) -> None:
    """Run a waiting job and store its result in it. Does nothing if another worker has started it. Takes minutes of a
    processor."""
    waiting = BackgroundJob.objects.running().filter(pk=job_id, kind=WHAT_IF_JOB, claimed_at=None)
    if not waiting.update(claimed_at=clock(), updated_at=clock()):
        return
    job = BackgroundJob.objects.get(pk=job_id)
    what, told = WhatIf(**job.result["what"]), job.created_at

    def tell(part: float) -> None:
        nonlocal told
        if (now := clock()) - told >= _EVERY:
            told = now
            if not report_progress(job_id, part, Message("Replaying the sessions."), now=now):
                raise _Cancelled

    try:
        found = _compare(ResourceGroup.objects.get(name=job.subject), what, tell, clock())
    except _Cancelled:
        stop_job(job_id, message=Message("Cancelled."), now=clock())
    except (UserError, ResourceGroup.DoesNotExist, ValueError, MemoryError) as error:
        message = getattr(error, "message", "") or Message("The replay failed: {error}.", error=error)
        finish_job(job_id, message=message, now=clock(), failed=True, fix=Message("Choose fewer days."))
    else:
        message = Message("{number} sessions replayed.", number=found["sessions"])
        finish_job(job_id, message=message, now=clock(), result={"what": asdict(what), **found})


def agents_of(group: ResourceGroup, now: datetime) -> list[AgentView]:
    """Return the agents of the group, empty."""
    known = read_snapshot(group, now, even_if_idle=True).agents
    return [AgentView(each.id, each.name, "", each.capacity, Slots()) for each in known]


def added_agents(spec: str, most: int = _MOST_AGENTS) -> list[AgentView]:
    """Return the agents that a text such as ``2 x cpu=32,mem=128g`` names; none for an empty text. Raises UserError."""
    if not spec:
        return []
    number, _, amounts = spec.partition(" x ")
    parts = dict(part.strip().split("=", 1) for part in amounts.split(",") if "=" in part)
    if not number.strip().isdecimal() or not 0 < int(number) <= most or not parts:
        problem = 'Agents are written as "2 x cpu=32,mem=128g", at most {most}; {spec} is not.'
        raise UserError(problem, most=most, spec=repr(spec[:80]), field="added", code="wrong-agents")
    try:
        capacity = Slots.parse(parts)
    except UserError as error:
        raise UserError(error.message, field="added", code="wrong-agents") from error
    return [AgentView(uuid4(), f"added-{each}", "", capacity, Slots()) for each in range(int(number))]


def _compare(group: ResourceGroup, what: WhatIf, tell: Callable[[float], None], now: datetime) -> dict[str, Any]:
    """Return the figures of both, as JSON values."""
    since = now - timedelta(days=what.days)
    ended = ComputeSession.objects.filter(resource_group=group, ended_at__isnull=False).exclude(started_at=None)
    oldest = ended.order_by("-created_at").values_list("created_at", flat=True)[MOST_SESSIONS - 1 : MOST_SESSIONS]
    jobs = list(islice(own_jobs(group, max([since, *oldest])), MOST_SESSIONS))
    agents = agents_of(group, now)
    if not jobs or not agents:
        raise UserError("No session of group {group} has ended in this time, or it has no agents.", group=group.name)
    rules = Rules(sequence=group.sequence, selection=group.selection, backfill=group.backfill)
    changed = replace(rules, sequence=what.sequence, backfill=what.backfill)
    more = [*agents, *added_agents(what.added, MOST_ADDED)]
    pair = (
        replay(jobs, agents, rules, lambda part: tell(part / 2)),
        replay(jobs, more, changed, lambda part: tell(0.5 + part / 2)),
    )
    return {
        "sessions": len(jobs),
        "rules": [[each.sequence, each.backfill] for each in (rules, changed)],
        "figures": [_figures(each) for each in pair],
        "moved": _moved(jobs, *pair),
        **_lines(jobs, pair, (agents, more)),
    }


def _figures(outcome: Outcome) -> dict[str, Any]:
    waits = {"p50": outcome.p50, "p95": outcome.p95, "longest": outcome.longest}
    used = {slot: round(share, 4) for slot, share in sorted(outcome.used.items()) if share}
    rounded = {name: round(seconds) for name, seconds in waits.items()}
    return {**rounded, "used": used, "fairness": round(outcome.fairness, 3), "never": outcome.never}


def _moved(jobs: Sequence[Job], before: Outcome, after: Outcome) -> list[list[Any]]:
    """Return id, owner and both waits of the sessions whose start moved most."""
    both = [job for job in jobs if job.number in before.starts and job.number in after.starts]
    far = sorted(both, key=lambda job: -abs(after.starts[job.number] - before.starts[job.number]))[:_MOST_MOVED]
    return [
        [str(UUID(int=job.number)), job.user]
        + [round((each.starts[job.number] - job.submitted).total_seconds()) for each in (before, after)]
        for job in far
        if before.starts[job.number] != after.starts[job.number]
    ]


def _lines(jobs: Sequence[Job], pair: Sequence[Outcome], agents: Sequence[Sequence[AgentView]]) -> Mapping[str, Any]:
    """Return waits and use of the busiest slot over time."""
    begin = min(job.submitted for job in jobs)
    ends = [each.starts[job.number] + job.length for job in jobs for each in pair if job.number in each.starts]
    width = max((max(ends, default=begin) - begin) / COLUMNS, timedelta(seconds=1))
    edges = [begin + width * place for place in range(COLUMNS + 1)]
    slot = max(pair[0].used, key=pair[0].used.__getitem__, default="cpu")
    capacity = [sum(agent.capacity[slot] for agent in each) for each in agents]
    lines = [parts_of(jobs, each.starts, most, slot, edges) for each, most in zip(pair, capacity, strict=True)]
    return {"slot": slot, "begin": begin.isoformat(), "seconds": width.total_seconds(), "lines": lines}
