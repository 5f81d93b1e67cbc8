"""Applies agents' reports about kernels, many at once. Outdated reports change nothing."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from enum import Enum
from typing import Any, NamedTuple
from uuid import UUID

from django.db import transaction
from django.db.models import QuerySet
from django.utils import timezone

from backendai.base.core.errors import Conflict, NotFound
from backendai.base.core.messages import Message, for_column
from backendai.base.db.bulk import among, list_of, listed
from backendai.base.db.per_row_case import Kind, by_row
from backendai.base.wire.messages import KernelReport, KernelState
from backendai.domain.cluster.models import Agent
from backendai.domain.compute.models import Kernel
from backendai.domain.compute.reasons import FINISHED, HOME_NOT_STORED
from backendai.domain.compute.services.life.follow import follow
from backendai.domain.compute.services.status.ledger import lock_sessions_of
from backendai.domain.compute.services.status.moves import move_kernels, touch
from backendai.domain.compute.services.status.steps import step_failed, steps_taken
from backendai.domain.compute.status import KERNEL_MOVES, STARTING, TERMINAL, Status, sources_of

_ENDED_BY_ITSELF = "exited"  # the agent's code for a main process that ended by itself
_ALIVE = STARTING | {Status.RUNNING}
_COLUMNS = (
    "session_id",
    "session__session_type",
    "session__status",
    "agent_id",
    "generation",
    "hostname",
    "status",
    "status_message",
    "progress",
    "fetched_bytes",
    "steps",
    "changed_at",
)


class ReceivedReport(NamedTuple):
    """A report and its agent."""

    agent: Agent
    report: KernelReport


class Verdict(Enum):
    """The result for a report. APPLIED: it is applied. STALE: the kernel is no longer wanted, or has another
    generation. FOREIGN: the kernel is unknown or on another agent. EARLY: its home is not stored yet."""

    APPLIED = "applied"
    STALE = "stale"
    FOREIGN = "foreign"
    EARLY = "early"


class _Located(NamedTuple):
    """A report with its kernel and its position in the call."""

    place: int
    kernel: Kernel
    agent: Agent
    report: KernelReport


def kernel_reported(agent: Agent, report: KernelReport, *, now: datetime | None = None) -> bool:
    """Apply an agent's report; returns whether the portal still wants the kernel. After False the agent removes the
    container. Raises NotFound for an unknown kernel and for a kernel of another agent, and Conflict for the end of a
    kernel whose home is not stored yet."""
    (verdict,) = kernels_reported([ReceivedReport(agent, report)], now=now or timezone.now())
    if verdict is Verdict.FOREIGN:
        raise NotFound("This kernel is not on this agent.")
    if verdict is Verdict.EARLY:
        raise Conflict("The home of this kernel is not stored yet.", code="home-not-stored")
    return verdict is Verdict.APPLIED


def kernels_reported(reports: Sequence[ReceivedReport], *, now: datetime) -> list[Verdict]:
    """Apply the reports of many agents in one transaction; returns a verdict for each report in order. The result is as
    if each report were applied by itself.

    A fixed number of statements per kind of change and round. A new round begins if two reports about one session
    cannot be applied together.
    """
    verdicts = [Verdict.FOREIGN] * len(reports)
    places = list(range(len(reports)))
    with transaction.atomic():
        while places:
            round_, places = _next_round(places, reports, verdicts)
            for item, verdict in _apply(round_, now):
                verdicts[item.place] = verdict
    return verdicts


def _next_round(
    places: Collection[int], reports: Sequence[ReceivedReport], verdicts: list[Verdict]
) -> tuple[list[_Located], list[int]]:
    """Return the reports that can be applied together now, and the positions of the reports for later rounds. Reports
    about unknown kernels, another agent's kernels or another generation are dropped, and their verdicts are written."""
    kernels = _read({reports[place].report.kernel_id for place in places})
    together: dict[UUID, list[_Located]] = defaultdict(list)
    closed: set[UUID] = set()
    later = []
    for place in places:
        agent, report = reports[place]
        kernel = kernels.get(report.kernel_id)
        if kernel is None or kernel.agent_id != agent.pk:
            continue
        if report.generation != kernel.generation:
            verdicts[place] = Verdict.STALE
            continue
        item, some = _Located(place, kernel, agent, report), together[kernel.session_id]
        if kernel.session_id in closed or not _go_together(some, item):
            closed.add(kernel.session_id)
            later.append(place)
        else:
            some.append(item)
    return [item for some in together.values() for item in some], later


def _read(kernel_ids: Collection[UUID]) -> dict[UUID, Kernel]:
    """Return the kernels by id, locked with their sessions in a fixed order until the transaction ends."""
    lock_sessions_of(kernel_ids)
    return {kernel.pk: kernel for kernel in _spoken_of(list_of(kernel_ids))}


def _go_together(some: Sequence[_Located], item: _Located) -> bool:
    """Return whether one update of the session after all these reports has the same result as an update after each."""
    if not some:
        return True
    first, state = some[0], item.report.state
    same = state == first.report.state and item.kernel.status == first.kernel.status
    # The first end of a kernel affects the other kernels, unless they are terminating already.
    changes_others = state == KernelState.TERMINATED and item.kernel.status != Status.TERMINATING
    return same and not changes_others and all(item.kernel.pk != one.kernel.pk for one in some)


def _apply(round_: Sequence[_Located], now: datetime) -> list[tuple[_Located, Verdict]]:
    verdicts, further = [], defaultdict[Status, list[_Located]](list)
    same, ended = [], []
    for item in round_:
        verdict = Verdict.APPLIED
        status = item.kernel.status
        if item.report.state == KernelState.TERMINATED:
            if _ends_early(item):
                verdict = Verdict.EARLY
            elif status not in TERMINAL:
                ended.append(item)
        elif status not in _ALIVE:
            verdict = Verdict.STALE
        elif status == item.report.state.value:
            same.append(item)
        elif status in sources_of(to := Status(item.report.state.value), KERNEL_MOVES):
            further[to].append(item)  # else a late report of an earlier step, which is ignored
        verdicts.append((item, verdict))
    _note_progress(same)
    moved = [pk for to, some in further.items() for pk in _advance(some, to, now)] + _end(ended, now)
    if moved:
        follow(moved, now=now)
    return verdicts


def _ends_early(item: _Located) -> bool:
    """Return whether the agent ended the program so that the session stops, and has yet to store its home. A program
    that succeeded meanwhile ends its session as usual."""
    kernel, report = item.kernel, item.report
    is_stopping = kernel.session.status == Status.STOPPING and kernel.status == Status.RUNNING
    return is_stopping and not report.reason and report.exit_code != 0


def _note_progress(some: Sequence[_Located]) -> None:
    changed = [
        item
        for item in some
        if item.report.progress != item.kernel.progress
        or item.report.fetched_bytes != item.kernel.fetched_bytes
        or item.report.full_message != item.kernel.status_message
    ]
    if not changed:
        return
    Kernel.objects.filter(pk__in=among([item.kernel.pk for item in changed]), status__in=_ALIVE).update(
        **_progress_columns(changed),
    )
    touch({item.kernel.session_id for item in changed})


def _progress_columns(some: Sequence[_Located]) -> dict[str, Any]:
    """Return the columns of these kernels that show the progress of their start."""
    return {
        "progress": _each({item.kernel.pk: item.report.progress for item in some}, "double precision"),
        "fetched_bytes": _each({item.kernel.pk: item.report.fetched_bytes for item in some}, "bigint"),
        "image_bytes": _each({item.kernel.pk: item.report.image_bytes for item in some}, "bigint"),
        "status_message": _each({item.kernel.pk: item.report.full_message for item in some}),
    }


def _advance(some: Sequence[_Located], to: Status, now: datetime) -> list[UUID]:
    """Move these kernels to status ``to``; returns the ids of the sessions to update."""
    columns = _progress_columns(some)
    steps = {
        item.kernel.pk: steps_taken(item.kernel, item.agent.name, to, item.report.timings, now=now) for item in some
    }
    columns["steps"] = _each(steps, "jsonb")
    if to == Status.RUNNING:
        columns["container_id"] = _each({item.kernel.pk: item.report.container_id for item in some})
        columns["started_at"] = now
    move_kernels([item.kernel.pk for item in some], to, now=now, **columns)
    return [item.kernel.session_id for item in some]


def _end(some: Sequence[_Located], now: datetime) -> list[UUID]:
    """End these kernels; returns the ids of the sessions to update."""
    # A terminating kernel keeps the reason of its termination.
    ordered = [item for item in some if item.kernel.status == Status.TERMINATING]
    by_itself = [item for item in some if item.kernel.status != Status.TERMINATING]
    if ordered:
        move_kernels([item.kernel.pk for item in ordered], Status.TERMINATED, now=now, **_end_columns(ordered))
    if by_itself:
        reasons = {item.kernel.pk: _reason(item) for item in by_itself}
        columns = _end_columns(by_itself) | {
            "status_reason": _each({pk: reason for pk, (reason, _) in reasons.items()}),
            "status_message": _each({pk: for_column(message) for pk, (_, message) in reasons.items()}),
        }
        if any(item.kernel.status in STARTING for item in by_itself):
            columns["steps"] = _each(
                {item.kernel.pk: _steps(item, *reasons[item.kernel.pk], now) for item in by_itself}, "jsonb"
            )
        move_kernels([item.kernel.pk for item in by_itself], Status.TERMINATED, now=now, **columns)
    return [item.kernel.session_id for item in some]


def _end_columns(some: Sequence[_Located]) -> dict[str, Any]:
    exit_codes = {item.kernel.pk: item.report.exit_code for item in some}
    return {"exit_code": _each(exit_codes, "integer"), "is_unconfirmed": False}


def _steps(item: _Located, reason: str, message: str, now: datetime) -> list[dict[str, Any]]:
    if item.kernel.status not in STARTING:
        return list(item.kernel.steps)
    return step_failed(item.kernel, item.agent.name, reason, message, now=now)


def _reason(item: _Located) -> tuple[str, str]:
    report, runs_program = item.report, item.kernel.session.kind.runs_program
    if not report.reason and runs_program and item.kernel.status == Status.RUNNING:  # the agent ended it to stop it
        return (FINISHED, "") if report.exit_code == 0 else (HOME_NOT_STORED, "")
    if report.reason != _ENDED_BY_ITSELF:
        return report.reason or "self-terminated", report.full_message
    cause = report.full_message if report.has_cause or report.exit_code is None else ""
    if not runs_program:
        message = Message(
            "The main program of {hostname} ended with exit code {exit_code}.",
            hostname=item.kernel.hostname,
            exit_code=report.exit_code,
        )
        return "self-terminated", cause or message
    if report.exit_code == 0:
        return FINISHED, cause
    text = Message("The batch program ended with exit code {exit_code}.", exit_code=report.exit_code)
    return "task-failed", cause or text


def _each(values: Mapping[UUID, Any], kind: Kind = "text") -> Any:
    """Return the value that all rows share, or an SQL expression with each row's value."""
    first = next(iter(values.values()))
    return first if all(value == first for value in values.values()) else by_row(Kernel, values, kind)


def _spoken_of(kernels: str) -> QuerySet[Kernel]:
    rows = Kernel.objects.select_for_update(of=("self",), no_key=True).select_related("session")
    return rows.filter(pk__in=listed(kernels)).order_by("session", "rank").only(*_COLUMNS)


def note_memory_kills(counts: Mapping[UUID, int], now: datetime) -> None:
    """Store how many programs the memory limit has ended in these kernels, and inform browsers. Three statements."""
    if counts:
        touch(list(Kernel.objects.filter(pk__in=among(list(counts))).values_list("session_id", flat=True).distinct()))
        rows = Kernel.objects.filter(pk__in=among(list(counts)))
        rows.update(memory_kills=by_row(Kernel, counts, "integer"), memory_killed_at=now)
