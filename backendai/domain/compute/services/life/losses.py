"""Ends kernels on a lost, retired or drained agent, and updates their sessions."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from datetime import datetime
from uuid import UUID

from django.db import transaction
from django.db.models import F, Q, QuerySet

from backendai.base.core.session_kinds import kinds_with
from backendai.base.db.bulk import among
from backendai.domain.compute.models import Kernel
from backendai.domain.compute.services.life.ending import hint_stops
from backendai.domain.compute.services.life.follow import follow
from backendai.domain.compute.services.status.ledger import lock_sessions_of
from backendai.domain.compute.services.status.moves import move_kernels, touch
from backendai.domain.compute.status import PLACED, STARTING, Status

MOST_AT_ONCE = 1000

# Kernels of sessions that run again when their agent is lost; see ``retrying.runs_again``.
RUN_AGAIN = Q(
    session__retry_on_agent_loss=True,
    session__session_type__in=kinds_with("runs_again"),
    session__status__in=STARTING | {Status.RUNNING},
    session__retries__lt=F("session__resource_group__max_retries"),
)


def end_unconfirmed(
    kernels: QuerySet[Kernel], reason: str, sentence: Callable[[str], str], *, now: datetime
) -> set[UUID]:
    """End these placed kernels without their agent's confirmation, and free their slots; returns the ids of their
    sessions.

    ``sentence``: makes the message from the agent's name. Terminating kernels keep their reason. At most
    ``MOST_AT_ONCE`` kernels.
    """
    ids = list(kernels.values_list("pk", flat=True)[:MOST_AT_ONCE])
    if not ids:
        return set()
    with transaction.atomic():
        lock_sessions_of(ids)
        found = list(
            kernels.filter(pk__in=among(ids), status__in=PLACED).values_list(
                "pk", "session_id", "status", "agent__name"
            )
        )
        by_agent: dict[str, list[UUID]] = defaultdict(list)
        for pk, _, status, agent in found:
            if status != Status.TERMINATING:
                by_agent[agent].append(pk)
        lost = move_kernels(
            [pk for pk, _, status, _ in found if status == Status.TERMINATING], Status.TERMINATED, now=now
        )
        for agent, ids in by_agent.items():
            lost |= move_kernels(ids, Status.TERMINATED, reason=reason, message=sentence(agent), now=now)
        Kernel.objects.filter(pk__in=lost).update(is_unconfirmed=True)
        sessions = {session_id for pk, session_id, _, _ in found if pk in lost}
        follow(sessions, now=now)
    return sessions


def stop_for_another_try(
    kernels: QuerySet[Kernel], reason: str, sentence: Callable[[str], str], *, now: datetime
) -> set[UUID]:
    """Order agents to end these kernels; returns the ids of their sessions. The sessions become pending again when all
    their kernels have ended. At most ``MOST_AT_ONCE`` kernels."""
    stopped: set[UUID] = set()
    ids = list(kernels.values_list("pk", flat=True)[:MOST_AT_ONCE])
    if not ids:
        return stopped
    with transaction.atomic():
        lock_sessions_of(ids)
        alive = kernels.filter(pk__in=among(ids), status__in=STARTING | {Status.RUNNING})
        by_agent: dict[str, dict[UUID, UUID]] = defaultdict(dict)
        for pk, session_id, agent in alive.values_list("pk", "session_id", "agent__name"):
            by_agent[agent][pk] = session_id
        for agent, of_agent in by_agent.items():
            moved = move_kernels(list(of_agent), Status.TERMINATING, reason=reason, message=sentence(agent), now=now)
            stopped |= {of_agent[pk] for pk in moved}
        touch(stopped)
        hint_stops(stopped)
    return stopped
