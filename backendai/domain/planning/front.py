"""Reads what decides about a session that is not launched yet, however long the queue is.

Sessions that the last pass let wait also wait in the next one while nothing changes. So a preview reads those that no
pass has considered, and the first ones that lack room, as they hold back others. The rest is counted by the database,
and stand-ins take its places in the order. What only the rest could use, and became free since the last pass, counts
as free.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any
from uuid import UUID, uuid4

from django.db.models import Case, Count, F, Q, Value, When

from backendai.base.core.session_kinds import KINDS
from backendai.domain.cluster.models import ResourceGroup
from backendai.domain.compute.models import ComputeSession
from backendai.domain.planning.queue import Newcomer, Queue, Row, columns, order_of
from backendai.scheduler.progress import LACKS_ROOM
from backendai.scheduler.sequence import may_be_passed
from backendai.scheduler.snapshot import Holder, Rules, SessionView

_MOST_NEW, _MOST_HEADS = 500, 5
_NEW = Q(wait_record=None)
_OWNER = ("owner_id", "project_id", "project__domain_id", "session_type")
_Part = tuple[int, bool, Holder]  # sessions with the same place beside a newcomer: priority, may be passed, holder


class Front:
    """The front of a group's queue. ``queue``: the sessions that decide about newcomers, a bounded number, with these.
    ``by_holder``: the order depends on holders. Two to nine queries."""

    def __init__(self, group: ResourceGroup, now: datetime, newcomers: Sequence[Newcomer], *, by_holder: bool) -> None:
        self._passed, self._by_holder = _passed(group, now), by_holder
        self._counts, has_new = self._counted(group)
        considered, order = _considered(resource_group=group), order_of(group.sequence)
        found: list[Row] = []
        if has_new:
            found += map(Row._make, columns(considered.filter(_NEW).order_by(*order)[:_MOST_NEW]))
        if self._counts:
            holds_back = ~self._passed | Q(status_data__has_key="until")
            heads = considered.filter(holds_back, status_reason__in=LACKS_ROOM).order_by("queue_position")
            found += map(Row._make, columns(heads[:_MOST_HEADS]))
        rows = list({row.id: row for row in found}.values())
        self._known = {row.id for row in rows}
        self.queue = Queue(rows, newcomers, with_ends=group.backfill)

    def stand_ins(self, views: Iterable[SessionView], rules: Rules, now: datetime) -> Mapping[SessionView, int]:
        """Return a session without kernels, which never starts, for each part of the rest, with its number of
        sessions."""
        left = self._counts.copy()
        for view in views:
            if view.id in self._known:
                holder = view.holder._replace(key_pair="") if self._by_holder else Holder()
                left[view.priority, may_be_passed(view, rules, now), holder] -= 1
        before = now - datetime.resolution
        return {
            SessionView(
                uuid4(), "", before, priority, (), attempts=is_passed * (rules.retries_to_skip + 1), holder=holder
            ): number
            for (priority, is_passed, holder), number in left.items()
            if number > 0
        }  # fmt: skip

    def _counted(self, group: ResourceGroup) -> tuple[Counter[_Part], bool]:
        """Return the number of sessions of each part, and whether no pass has considered some of them."""
        is_passed = Case(When(self._passed, then=Value(True)), default=Value(False))
        names = ("priority", is_passed, *(_OWNER if self._by_holder else ()))
        counts: Counter[_Part] = Counter()
        has_new = False
        rows = _considered(resource_group=group).order_by().values_list(*names)
        for priority, passed, *owner, number, new in rows.annotate(all=Count("pk"), new=Count("pk", filter=_NEW)):
            counts[priority, passed, _holder(*owner) if owner else Holder()] += number
            has_new = has_new or new > 0
        return counts, has_new


def first_in(group: str, number: int) -> list[UUID]:
    """Return the ids of so many pending sessions of the group with this name, the first of the last pass first."""
    order = F("queue_position").asc(nulls_last=True), "-priority", "created_at"
    return list(_considered(resource_group__name=group).order_by(*order).values_list("pk", flat=True)[:number])


def _considered(**group: Any) -> Any:
    """Return the pending sessions of the group without those that the last pass left out or could not read."""
    pending: Any = ComputeSession.objects.pending().filter(**group)
    return pending.filter(Q(queue_position__isnull=False) | _NEW)


def _passed(group: ResourceGroup, now: datetime) -> Q:
    """Return the condition of ``scheduler.sequence.may_be_passed``."""
    if not group.retries_to_skip:
        return Q(pk__in=())
    in_time = Q(overtaken_since=None) | Q(overtaken_since__gt=now - group.overtaking_limit)
    return Q(attempts__gt=group.retries_to_skip) & in_time


def _holder(owner: Any, project: Any, domain: Any, session_type: str) -> Holder:
    if not KINDS[session_type].counts:
        return Holder()
    return Holder(f"user:{owner}", "", f"project:{project}", f"domain:{domain}")
