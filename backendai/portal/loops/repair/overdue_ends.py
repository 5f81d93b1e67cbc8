"""Handles ends that exceed their time limit: forces them on reachable agents, and records them as unconfirmed on
others.

A reachable agent cannot end a kernel while its container engine is down. The history then counts how long the forced
end has been open. A superadmin can free the slots by a forced termination.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from datetime import datetime
from uuid import UUID

from django.db import transaction
from django.db.models import F, Max, QuerySet

from backendai.base.core.durations import describe_duration
from backendai.base.core.messages import Message, for_column
from backendai.base.db.bulk import update_returning, update_rows
from backendai.domain.cluster.models import Agent
from backendai.domain.compute.models import ComputeSession, Kernel, SchedulingRecord
from backendai.domain.compute.services.life.ending import hint_stops
from backendai.domain.compute.services.status.history import Entry, write_history
from backendai.domain.compute.services.status.moves import touch
from backendai.domain.compute.status import Outcome, Phase, Status

_MOST_AT_ONCE = 1000
_FORCED, _UNCONFIRMED = "terminate-timeout", "end-unconfirmed"
_LIMIT = "session__resource_group__terminate_timeout"
_Sentence = Callable[[str, str, str, str], str]  # arguments: host name, agent, time waited, time allowed


def force_ends(now: datetime) -> int:
    """Force overdue ends of kernels, or record that their agent cannot confirm them; returns how many kernels. At most
    ``_MOST_AT_ONCE`` of each per call. While a forced end is open, the history counts it once per
    ``terminate_timeout``."""
    answering = Agent.objects.answering()
    ending = Kernel.objects.filter(status=Status.TERMINATING)
    ending.filter(is_unconfirmed=True, agent__in=answering).update(is_unconfirmed=False)  # the agent is reachable again
    overdue = ending.filter(changed_at__lt=now - F(_LIMIT))
    forced = _mark(overdue.filter(agent__in=answering, forced_at=None), now, forced_at=now)
    silent = overdue.exclude(agent__in=answering).filter(is_unconfirmed=False)
    unconfirmed = _mark(silent, now, is_unconfirmed=True)
    _count(ending.filter(agent__in=answering, forced_at__lt=now - F(_LIMIT)), now)
    return forced + unconfirmed


def _mark(kernels: QuerySet[Kernel], now: datetime, **columns: object) -> int:
    """Set ``columns`` on up to 1,000 kernels that lack these values; returns how many. Writes one history row per
    session."""
    candidates = list(kernels.values_list("pk", flat=True)[:_MOST_AT_ONCE])
    if not candidates:
        return 0
    with transaction.atomic():
        conditions = {name: None if name == "forced_at" else False for name in columns}
        still = Kernel.objects.filter(pk__in=candidates, status=Status.TERMINATING, **conditions)
        marked = [UUID(str(pk)) for (pk,) in update_returning(still, columns, ("id",))]
        forced = "forced_at" in columns
        sentences = _sentences(Kernel.objects.filter(pk__in=marked), now, _is_killed if forced else _is_silent)
        touch(list(sentences))  # locks the sessions, so that history rows follow each other without a gap
        _write(sentences, _FORCED if forced else _UNCONFIRMED, now)
        if forced:
            hint_stops(sentences)
    return len(marked)


def _count(kernels: QuerySet[Kernel], now: datetime) -> None:
    """Record in the newest history row of each session that its forced end is still open. If that row is about
    something else, write a new row."""
    sentences = _sentences(kernels, now, _stays)
    if not _due(sentences, now):
        return
    with transaction.atomic():
        touch(list(_due(sentences, now)))  # locks the sessions: a concurrent pass then finds nothing due
        due = _due(sentences, now)
        _write({session: sentences[session] for session, uid in due.items() if uid is None}, _FORCED, now)
        again = {uid: for_column(sentences[session]) for session, uid in due.items() if uid is not None}
        texts = {"message": ("text", list(again.values()))}
        always = {"updated_at": now}
        table = SchedulingRecord._meta.db_table
        update_rows(table, list(again), texts, key="uid", always=always, counting=["attempts"])


def _due(sessions: Collection[UUID], now: datetime) -> dict[UUID, UUID | None]:
    """Return the sessions whose open forced end is counted now, by id. The value is the history row to update (None:
    write a new row)."""
    newest = SchedulingRecord.objects.filter(session__in=list(sessions)).order_by().values("session")
    rows = SchedulingRecord.objects.filter(pk__in=newest.annotate(newest=Max("pk")).values("newest"))
    due: dict[UUID, UUID | None] = {}
    for row in rows.select_related("session__resource_group"):
        state = row.phase, row.result, row.error_code, row.to_status
        if state != (Phase.TERMINATE, Outcome.EXPIRED, _FORCED, row.session.status):
            due[row.session_id] = None
        elif row.updated_at < now - row.session.resource_group.terminate_timeout:
            due[row.session_id] = row.uid
    return due


def _sentences(kernels: QuerySet[Kernel], now: datetime, sentence: _Sentence) -> dict[UUID, str]:
    """Return one sentence for each session about its first kernel, by session id."""
    sentences: dict[UUID, str] = {}
    columns = ("session_id", "hostname", "agent__name", "changed_at", _LIMIT)
    for session_id, hostname, agent, since, limit in kernels.order_by("rank").values_list(*columns)[:_MOST_AT_ONCE]:
        waited, allowed = describe_duration(now - since), describe_duration(limit)
        sentences.setdefault(session_id, sentence(hostname, agent, waited, allowed))
    return sentences


def _is_killed(hostname: str, agent: str, waited: str, allowed: str) -> str:
    return Message(
        "Agent {agent} has not ended {hostname} for {waited}; the limit is {allowed}. It is killed now.",
        agent=agent,
        hostname=hostname,
        waited=waited,
        allowed=allowed,
    )


def _is_silent(hostname: str, agent: str, waited: str, allowed: str) -> str:
    return Message(
        "Agent {agent} is unreachable and has not confirmed the end of {hostname} for {waited}; it may "
        "still run there, so its resources stay allocated.",
        agent=agent,
        hostname=hostname,
        waited=waited,
    )


def _stays(hostname: str, agent: str, waited: str, allowed: str) -> str:
    return Message(
        "Agent {agent} was told to kill {hostname} and has not ended it for {waited}; the limit is "
        "{allowed}. It may still run there, so its resources stay allocated until the agent ends it or an "
        "administrator frees them by force.",
        agent=agent,
        hostname=hostname,
        waited=waited,
        allowed=allowed,
    )


def _write(sentences: Mapping[UUID, str], code: str, now: datetime) -> None:
    statuses = dict(ComputeSession.objects.filter(pk__in=sentences).values_list("pk", "status"))
    for status in set(statuses.values()):
        entries = [
            Entry(pk, status, Outcome.EXPIRED, code, sentences[pk]) for pk, at in statuses.items() if at == status
        ]
        write_history(entries, Phase.TERMINATE, status, now=now)
