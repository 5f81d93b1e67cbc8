"""Selects, orders and counts the sessions of a list."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, cast
from uuid import UUID

from django.db.models import Count, Prefetch, Q, QuerySet, Value, prefetch_related_objects
from django.utils import timezone
from django.utils.functional import Promise

from backendai.base.core.session_kinds import KINDS
from backendai.base.db.bulk import list_of, listed
from backendai.domain.accounts.models import User
from backendai.domain.catalog.models import Image
from backendai.domain.compute.models import ComputeSession, Kernel
from backendai.domain.compute.querysets import SessionQuerySet, with_labels
from backendai.domain.compute.services.apps.public import is_public
from backendai.domain.planning.idle.checks import announced_end
from backendai.portal.web.frame.kind_words import words_of
from backendai.portal.web.frame.paging import LongPaginator, SortedKeys
from backendai.portal.web.session_list.address import Address
from backendai.portal.web.session_list.columns import NEWEST_FIRST, Column, in_order, is_by_time, order_of, usual_order
from backendai.portal.web.session_list.filters import SessionListFilter, kind_of, narrowed
from backendai.portal.web.session_list.usage import note_usage

# Of what has ended only so many are put into an order that is not one of time: those that ended last.
MOST_SORTED = 5_000
_LABEL = "label:"  # begins the words of a search that name a label
_MOST_OWNERS = 1_000  # of anyone who types a single letter
_OF_A_KERNEL = ("session_id", "rank", "status", "progress")
# What a row is made of: a list reads only this, for a session and what it points to have a hundred columns.
_OF_A_ROW = (
    "name", "version", "session_type", "status", "status_reason", "status_message", "status_data", "result", "priority",
    "slots", "total_slots", "cluster_size", "cluster_mode", "access_key", "labels", "preopen_ports", "starts_at",
    "queue_position", "retries", "created_at", "started_at", "ended_at", "owner__email", "project__name",
    "resource_group__name", "resource_group__max_retries", "image__name", "image__title", "image__labels",
    "image__process_reference", "image__services", "start_forecast__expected",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Numbers:
    """The numbers of live sessions by type, and of ended ones.

    Both with those of runs, which the list shows as rows of runs: ``live_in_runs`` and ``ended_in_runs``.
    """

    live: dict[str, int] = field(default_factory=dict)
    live_in_runs: dict[str, int] = field(default_factory=dict)
    ended: int = 0
    ended_in_runs: int = 0

    @property
    def all_live(self) -> int:
        """The number of live sessions of all types."""
        return sum(self.live.values())

    def rows(self, kind: str) -> int:
        """Return the number of live sessions of a type (empty: all) that have rows of their own."""
        kinds = [kind] if kind else list(self.live)
        return sum(self.live.get(name, 0) - self.live_in_runs.get(name, 0) for name in kinds)


@dataclass(frozen=True, slots=True)
class Tab:
    """A tab with the sessions of one type (empty: all): their number, its address, and whether it is shown."""

    kind: str
    number: int
    address: str
    is_current: bool

    @property
    def title(self) -> str | Promise:
        """The title of the type."""
        return words_of(self.kind).title


def whose(address: Address, user: User) -> SessionQuerySet:
    """Return the sessions of the list.

    They are the user's own; for administrators all visible ones, unless they choose only their own. Or those of others
    that are shared with the user.
    """
    if address.shared:
        return cast(SessionQuerySet, ComputeSession.objects.shared_with(user))
    return _whose(user, address.get("whose") == "mine")


def numbers_of(address: Address, user: User) -> Numbers:
    """Return the numbers of sessions in the list, in three queries on indexes."""
    mine = address.get("whose") == "mine"
    if address.shared:
        live = whose(address, user).filter(run_id=None).order_by().values_list("session_type").annotate(Count("pk"))
        return Numbers(dict(live))
    found, ((number,),), ((in_runs,),) = list(_live(user, mine)), list(_all(user, mine)), list(_in_runs(user, mine))
    live = {kind: count for kind, count, _ in found}
    live_in_runs = {kind: count for kind, _, count in found}
    return Numbers(live, live_in_runs, number - sum(live.values()), in_runs - sum(live_in_runs.values()))


def chosen(address: Address, user: User, found: SessionListFilter) -> QuerySet[Any]:
    """Return the requested sessions in their order, without related rows."""
    rows, order = _asked_for(address, user, found), order_of(address, user)
    if is_cut(address, order):
        last = in_order(rows, usual_order(address)).values("pk")[:MOST_SORTED]
        rows = ComputeSession.objects.filter(pk__in=last)
    return in_order(rows, order)


def rows_of(
    ids: Sequence[UUID], columns: Sequence[Column], order: Sequence[str] = NEWEST_FIRST
) -> list[ComputeSession]:
    """Return these sessions with everything that the list shows.

    The caller has checked that they are visible. Two queries, and one for the usage if a session runs.
    """
    found = list(_rows(list_of(ids), tuple(order))) if ids else []
    kernels = Kernel.objects.only(*_OF_A_KERNEL)
    if "agent" in {column.name for column in columns}:
        kernels = kernels.select_related("agent").only(*_OF_A_KERNEL, "agent__name")
    prefetch_related_objects(found, Prefetch("kernels", kernels))
    note_usage(found, now=timezone.now())
    return found


def pages_of(
    address: Address, user: User, found: SessionListFilter, columns: Sequence[Column], numbers: Numbers
) -> LongPaginator:
    """Return the pages of the list. Counts the sessions only if their number is unknown."""
    rows, order = _asked_for(address, user, found), order_of(address, user)
    rows = in_order(rows, order)
    number = _known(address, found, numbers)
    keys: QuerySet[Any, Any] | SortedKeys = rows.values_list("pk", flat=True)
    if is_cut(address, order):
        number = number if number is None else min(number, MOST_SORTED)
        keys = SortedKeys(rows.order_by(*usual_order(address)), MOST_SORTED, order)
    return LongPaginator(partial(rows_of, columns=columns, order=order), keys, address.size, number)


def is_cut(address: Address, order: Sequence[str]) -> bool:
    """Return whether the order limits the list to the ``MOST_SORTED`` sessions that ended last.

    Only the index of ends has names; in the order of launches a search would read every ended row.
    """
    if not address.finished or order[0] in ("ended_at", "-ended_at"):
        return False
    return bool(address.get("q")) or not is_by_time(order)


def type_tabs(address: Address, numbers: Numbers) -> list[Tab]:
    """Return a tab for all sessions, and one for each type. Types that people do not launch need live sessions."""
    kinds = [name for name, kind in KINDS.items() if kind.is_launched or numbers.live.get(name)]
    now = kind_of(address)
    tabs = [Tab("", numbers.all_live, address.to(type=""), not now)]
    tabs += [Tab(kind, numbers.live.get(kind, 0), address.to(type=kind), now == kind) for kind in kinds]
    return tabs


def _asked_for(address: Address, user: User, found: SessionListFilter) -> QuerySet[Any]:
    sessions = whose(address, user)
    rows: QuerySet[Any] = sessions.finished() if address.finished else sessions.live()
    rows = rows.filter(run_id=None)  # a run is one row
    if kind := kind_of(address):
        rows = rows.filter(session_type=kind)
    return narrowed(_matching(rows, address.get("q")[:100]), found)


def _whose(user: User, mine: bool) -> SessionQuerySet:
    visible: SessionQuerySet = ComputeSession.objects.visible_to(user)
    return visible.filter(owner=user) if mine else visible


def _rows(ids: str, order: Sequence[str]) -> QuerySet[Any]:
    # By their ids alone: with the owner beside them SQLite goes through all that the owner ever had.
    rows = ComputeSession.objects.filter(pk__in=listed(ids)).annotate(idle_end=announced_end(), is_public=is_public())
    rows = rows.select_related("image", "resource_group", "owner", "project", "start_forecast").only(*_OF_A_ROW)
    return in_order(rows, order)


def _known(address: Address, found: SessionListFilter, numbers: Numbers) -> int | None:
    if address.get("q") or any(found.form.cleaned_data.values()):
        return None
    kind = kind_of(address)
    if address.finished:
        return None if kind else numbers.ended - numbers.ended_in_runs
    return numbers.rows(kind)


def _matching(rows: QuerySet[Any], words: str) -> QuerySet[Any]:
    for word in words.replace("\0", "").split():
        if word.startswith(_LABEL):
            rows = with_labels(rows, [word.removeprefix(_LABEL)])
            continue
        # Looked up in the small tables first: joined, every session would look there. What is not found there is not
        # asked of every session either.
        images = list(Image.objects.filter(name__icontains=word).values_list("pk", flat=True))
        owners = list(User.objects.filter(email__icontains=word).values_list("pk", flat=True)[:_MOST_OWNERS])
        rows = rows.filter(Q(name__icontains=word) | Q(image__in=images) | Q(owner__in=owners))
    return rows


def _live(user: User, mine: bool) -> QuerySet[Any, Any]:
    rows = _whose(user, mine).live()
    return rows.order_by().values_list("session_type").annotate(Count("pk"), Count("run_id"))


def _all(user: User, mine: bool) -> QuerySet[Any, Any]:
    # Nothing stands beside it, not even the constant that makes it one row: SQLite then counts whole pages of an index.
    one = _whose(user, mine).order_by().annotate(all=Value(1)).values("all")
    return one.annotate(number=Count("*")).values_list("number")


def _in_runs(user: User, mine: bool) -> QuerySet[Any, Any]:
    rows = _whose(user, mine).filter(run_id__isnull=False)
    return rows.order_by().annotate(all=Value(1)).values("all").annotate(number=Count("*")).values_list("number")
