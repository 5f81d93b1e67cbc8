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

from backendai.accounts.prepared import Prepared
from backendai.cluster.models import Agent
from backendai.compute.models import Kernel
from backendai.compute.reasons import FINISHED
from backendai.compute.services.bulk import among, list_of, listed
from backendai.compute.services.by_row import Kind, by_row
from backendai.compute.services.follow import follow
from backendai.compute.services.holding import hold_sessions_of
from backendai.compute.services.moves import move_kernels, touch
from backendai.compute.services.steps import step_failed, steps_taken
from backendai.compute.status import KERNEL_MOVES, STARTING, TERMINAL, Status, sources_of
from backendai.core.errors import NotFound
from backendai.core.messages import Message, for_column
from backendai.wire.messages import KernelReport, KernelState

_RAN_OUT = "exited"  # the agent's code for a main process that ended by itself
_ALIVE = STARTING | {Status.RUNNING}
_COLUMNS = (
    "session_id",
    "session__session_type",
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


class Word(NamedTuple):
    """A report and its agent."""

    agent: Agent
    report: KernelReport


class Verdict(Enum):
    """The result for a report: applied, the kernel is no longer wanted, or the kernel is on another agent."""

    APPLIED = "applied"
    STALE = "stale"
    FOREIGN = "foreign"


class _Told(NamedTuple):
    """A report with its kernel and its position in the call."""

    place: int
    kernel: Kernel
    agent: Agent
    report: KernelReport


def kernel_reported(agent: Agent, report: KernelReport, *, now: datetime | None = None) -> bool:
    """Apply an agent's report; returns whether the portal still wants the kernel. False tells the agent to remove the
    container. Raises NotFound for a kernel of another agent."""
    (verdict,) = kernels_reported([Word(agent, report)], now=now or timezone.now())
    if verdict is Verdict.FOREIGN:
        raise NotFound("This kernel is not on this agent.")
    return verdict is Verdict.APPLIED


def kernels_reported(words: Sequence[Word], *, now: datetime) -> list[Verdict]:
    """Apply the reports of many agents in one transaction; returns a verdict for each. The result is the same as for
    one by one.

    A fixed number of statements per kind of change and round. A new round begins if two reports about one session
    cannot be applied together.
    """
    verdicts = [Verdict.FOREIGN] * len(words)
    places = list(range(len(words)))
    with transaction.atomic():
        while places:
            round_, places = _next_round(places, words, verdicts)
            for told, verdict in _apply(round_, now):
                verdicts[told.place] = verdict
    return verdicts


def _next_round(
    places: Collection[int], words: Sequence[Word], verdicts: list[Verdict]
) -> tuple[list[_Told], list[int]]:
    """Return the reports that can be applied together now, and the positions of later ones. Reports about another
    agent's kernel or an older generation are dropped, and their verdicts are written."""
    kernels = _read({words[place].report.kernel_id for place in places})
    together: dict[UUID, list[_Told]] = defaultdict(list)
    closed: set[UUID] = set()
    later = []
    for place in places:
        agent, report = words[place]
        kernel = kernels.get(report.kernel_id)
        if kernel is None or kernel.agent_id != agent.pk:
            continue
        if report.generation != kernel.generation:
            verdicts[place] = Verdict.STALE
            continue
        told, some = _Told(place, kernel, agent, report), together[kernel.session_id]
        if kernel.session_id in closed or not _go_together(some, told):
            closed.add(kernel.session_id)
            later.append(place)
        else:
            some.append(told)
    return [told for some in together.values() for told in some], later


def _read(kernel_ids: Collection[UUID]) -> dict[UUID, Kernel]:
    """Return the kernels, locked with their sessions in a fixed order until the transaction ends."""
    hold_sessions_of(kernel_ids)
    return {kernel.pk: kernel for kernel in _SPOKEN_OF.rows(list_of(kernel_ids))}


def _go_together(some: Sequence[_Told], told: _Told) -> bool:
    """Return whether updating the session once after all these reports gives the same result as updating it after each
    report."""
    if not some:
        return True
    first, state = some[0], told.report.state
    same = state == first.report.state and told.kernel.status == first.kernel.status
    # The first end of a kernel affects the other kernels, unless they are terminating already.
    changes_others = state == KernelState.TERMINATED and told.kernel.status != Status.TERMINATING
    return same and not changes_others and all(told.kernel.pk != one.kernel.pk for one in some)


def _apply(round_: Sequence[_Told], now: datetime) -> list[tuple[_Told, Verdict]]:
    verdicts, further = [], defaultdict[Status, list[_Told]](list)
    same, ended = [], []
    for told in round_:
        verdict = Verdict.APPLIED
        status = told.kernel.status
        if told.report.state == KernelState.TERMINATED:
            if status not in TERMINAL:
                ended.append(told)
        elif status not in _ALIVE:
            verdict = Verdict.STALE
        elif status == told.report.state.value:
            same.append(told)
        elif status in sources_of(to := Status(told.report.state.value), KERNEL_MOVES):
            further[to].append(told)  # else a late report of an earlier step, which is ignored
        verdicts.append((told, verdict))
    _note_progress(same)
    moved = [pk for to, some in further.items() for pk in _advance(some, to, now)] + _end(ended, now)
    if moved:
        follow(moved, now=now)
    return verdicts


def _note_progress(some: Sequence[_Told]) -> None:
    news = [
        told
        for told in some
        if told.report.progress != told.kernel.progress
        or told.report.fetched_bytes != told.kernel.fetched_bytes
        or told.report.said != told.kernel.status_message
    ]
    if not news:
        return
    Kernel.objects.filter(pk__in=among([told.kernel.pk for told in news]), status__in=_ALIVE).update(
        **_words(news),
    )
    touch({told.kernel.session_id for told in news})


def _words(some: Sequence[_Told]) -> dict[str, Any]:
    """Return the columns of these kernels that show the progress of their start."""
    return {
        "progress": _each({told.kernel.pk: told.report.progress for told in some}, "double precision"),
        "fetched_bytes": _each({told.kernel.pk: told.report.fetched_bytes for told in some}, "bigint"),
        "image_bytes": _each({told.kernel.pk: told.report.image_bytes for told in some}, "bigint"),
        "status_message": _each({told.kernel.pk: told.report.said for told in some}),
    }


def _advance(some: Sequence[_Told], to: Status, now: datetime) -> list[UUID]:
    """Move these kernels; returns the sessions to update."""
    columns = _words(some)
    steps = {
        told.kernel.pk: steps_taken(told.kernel, told.agent.name, to, told.report.timings, now=now) for told in some
    }
    columns["steps"] = _each(steps, "jsonb")
    if to == Status.RUNNING:
        columns["container_id"] = _each({told.kernel.pk: told.report.container_id for told in some})
        columns["started_at"] = now
    move_kernels([told.kernel.pk for told in some], to, now=now, **columns)
    return [told.kernel.session_id for told in some]


def _end(some: Sequence[_Told], now: datetime) -> list[UUID]:
    """End these kernels; returns the sessions to update."""
    # A terminating kernel keeps the reason of its termination.
    told_to = [told for told in some if told.kernel.status == Status.TERMINATING]
    by_itself = [told for told in some if told.kernel.status != Status.TERMINATING]
    if told_to:
        move_kernels([told.kernel.pk for told in told_to], Status.TERMINATED, now=now, **_end_columns(told_to))
    if by_itself:
        reasons = {told.kernel.pk: _reason(told) for told in by_itself}
        columns = _end_columns(by_itself) | {
            "status_reason": _each({pk: reason for pk, (reason, _) in reasons.items()}),
            "status_message": _each({pk: for_column(message) for pk, (_, message) in reasons.items()}),
        }
        if any(told.kernel.status in STARTING for told in by_itself):
            columns["steps"] = _each(
                {told.kernel.pk: _steps(told, *reasons[told.kernel.pk], now) for told in by_itself}, "jsonb"
            )
        move_kernels([told.kernel.pk for told in by_itself], Status.TERMINATED, now=now, **columns)
    return [told.kernel.session_id for told in some]


def _end_columns(some: Sequence[_Told]) -> dict[str, Any]:
    exit_codes = {told.kernel.pk: told.report.exit_code for told in some}
    return {"exit_code": _each(exit_codes, "integer"), "is_unconfirmed": False}


def _steps(told: _Told, reason: str, message: str, now: datetime) -> list[dict[str, Any]]:
    if told.kernel.status not in STARTING:
        return list(told.kernel.steps)
    return step_failed(told.kernel, told.agent.name, reason, message, now=now)


def _reason(told: _Told) -> tuple[str, str]:
    report = told.report
    if report.reason != _RAN_OUT:
        return report.reason or "self-terminated", report.said
    if not told.kernel.session.kind.runs_program:
        message = Message(
            "The main program of {hostname} ended with exit code {exit_code}.",
            hostname=told.kernel.hostname,
            exit_code=report.exit_code,
        )
        return "self-terminated", message
    if report.exit_code == 0:
        return FINISHED, ""
    return "task-failed", Message("The batch program ended with exit code {exit_code}.", exit_code=report.exit_code)


def _each(values: Mapping[UUID, Any], kind: Kind = "text") -> Any:
    """Return the value that all rows share, or an SQL expression with each row's value."""
    first = next(iter(values.values()))
    return first if all(value == first for value in values.values()) else by_row(Kernel, values, kind)


def _spoken_of(kernels: str) -> QuerySet[Kernel]:
    rows = Kernel.objects.select_for_update(of=("self",), no_key=True).select_related("session")
    return rows.filter(pk__in=listed(kernels)).order_by("session", "rank").only(*_COLUMNS)


_SPOKEN_OF = Prepared(_spoken_of)
