"""Finds the first session of a resource group that does not fit, and the sessions that hold slots."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from django.db.models import Count, F, Min, Q, Window
from django.db.models.functions import RowNumber

from backendai.domain.accounts.models import User
from backendai.domain.cluster.models import ResourceGroup
from backendai.domain.compute.models import ComputeSession, Kernel
from backendai.domain.compute.status import PLACED
from backendai.scheduler.progress import LACKS_ROOM

MOST_GROUPS, MOST_HOLDERS = 5, 5


@dataclass(frozen=True, slots=True)
class Holding:
    """A session that holds slots in the group, and its agents."""

    session: ComputeSession
    agents: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Head:
    """A group with a session that does not fit. ``first``: that session. ``holders``: the ``MOST_HOLDERS`` sessions
    that have held slots longest. ``others``: how many further sessions hold slots. Only sessions that the user may see
    count."""

    group: ResourceGroup
    first: ComputeSession
    holders: tuple[Holding, ...]
    others: int


@dataclass(frozen=True, slots=True)
class Holders:
    """The sessions that hold slots in a group. ``own``: the ``MOST_HOLDERS`` of the user that have held slots longest,
    of ``number``. ``others``: the number of sessions of others. ``first_end``: the earliest known end of all."""

    own: tuple[ComputeSession, ...]
    number: int
    others: int
    first_end: datetime | None

    @property
    def more(self) -> int:
        """The number of the user's sessions that ``own`` leaves out."""
        return self.number - len(self.own)


def heads_of(user: User, groups: Sequence[ResourceGroup]) -> list[Head]:
    """Return the first session that does not fit, for each group that has one. Checks the first ``MOST_GROUPS`` groups.
    Only sessions that the user may see are included. Three queries."""
    shown = {group.pk: group for group in groups[:MOST_GROUPS]}
    visible: Any = ComputeSession.objects.visible_to(user).filter(resource_group__in=shown).select_related("owner")
    waiting = visible.pending().filter(status_reason__in=LACKS_ROOM, queue_position__isnull=False)
    first = {session.resource_group_id: session for session in _ranked(waiting, F("queue_position").asc(), 1)}
    if not first:
        return []
    placed = visible.filter(resource_group__in=first, status__in=PLACED)
    holders = list(_ranked(placed, F("started_at").asc(nulls_last=True), MOST_HOLDERS))
    agents = _agents_of([session.pk for session in holders])
    held: dict[int, list[Any]] = defaultdict(list)
    for session in holders:
        held[session.resource_group_id].append(session)
    return [
        Head(
            group,
            first[pk],
            tuple(Holding(session, agents[session.pk]) for session in held[pk]),
            held[pk][0].number - len(held[pk]) if held[pk] else 0,
        )
        for pk, group in shown.items()
        if pk in first
    ]


def holders_beside(session: ComputeSession, user: User) -> Holders:
    """Return the sessions that hold slots in the group of a pending session: the user's own, and the number of others.
    Two queries."""
    placed: Any = ComputeSession.objects.filter(resource_group=session.resource_group_id, status__in=PLACED)
    own = placed.filter(owner=user).order_by(F("started_at").asc(nulls_last=True), "pk")[:MOST_HOLDERS]
    counted = placed.aggregate(all=Count("pk"), mine=Count("pk", filter=Q(owner=user)), first_end=Min("ends_at"))
    return Holders(tuple(own), counted["mine"], counted["all"] - counted["mine"], counted["first_end"])


def _ranked(rows: Any, order: Any, most: int) -> Any:
    """Return the first ``most`` rows of each group in this order. Each row has the group's number of rows as
    ``number``."""
    group = F("resource_group")
    rank = Window(RowNumber(), partition_by=group, order_by=[order, "pk"])
    number = Window(Count("pk"), partition_by=group)
    return rows.annotate(rank=rank, number=number).filter(rank__lte=most).order_by("resource_group", "rank")


def _agents_of(session_ids: Sequence[UUID]) -> dict[UUID, tuple[str, ...]]:
    names: dict[UUID, set[str]] = defaultdict(set)
    kernels = Kernel.objects.filter(session__in=session_ids, agent__isnull=False).order_by()
    for session_id, name in kernels.values_list("session_id", "agent__name"):
        names[session_id].add(name)
    return {session_id: tuple(sorted(names[session_id])) for session_id in session_ids}
