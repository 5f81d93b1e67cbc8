"""The sessions that a list shows: whose, which, in which order, and how many there are of each kind."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from django.db.models import Count, Prefetch, Q, QuerySet

from backendai.accounts.models import User
from backendai.catalog.models import Image
from backendai.compute.models import ComputeSession, Kernel
from backendai.compute.querysets import SessionQuerySet
from backendai.compute.status import SessionType
from backendai.planning.idle_checks import announced_end
from backendai.web.paging import LongPaginator
from backendai.web.session_list.address import Address
from backendai.web.session_list.columns import NEWEST_FIRST, Column, in_order, is_by_time, order_of
from backendai.web.session_list.filters import SessionListFilter, kind_of, narrowed

# Of what has ended only so many are put into another order than that of their launch: the newest.
MOST_SORTED = 5_000
_ALWAYS_SHOWN = frozenset({SessionType.INTERACTIVE, SessionType.BATCH})
_MOST_OWNERS = 1_000  # of whoever types a single letter
_NEVER_SHOWN = (
    "environ", "startup_command", "designated_agents", "avoid_agents", "idempotency_key", "request_digest",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Numbers:
    """How many sessions there are: live ones by type, and ended ones."""

    live: dict[str, int] = field(default_factory=dict)
    ended: int = 0

    @property
    def all_live(self) -> int:
        """Those of every type."""
        return sum(self.live.values())


@dataclass(frozen=True, slots=True)
class Tab:
    """The sessions of one type (empty: of all): how many live, the address, whether they are shown."""

    kind: str
    number: int
    address: str
    is_current: bool


def whose(address: Address, user: User) -> SessionQuerySet:
    """Return the sessions that the list is about: one's own, and for administrators all that they may see unless they
    ask for theirs alone."""
    visible: SessionQuerySet = ComputeSession.objects.visible_to(user)
    return visible.filter(owner=user) if address.get("whose") == "mine" else visible


def numbers_of(sessions: SessionQuerySet) -> Numbers:
    """Count, in two queries that indexes alone can answer."""
    live = dict(sessions.live().order_by().values_list("session_type").annotate(Count("pk")))
    return Numbers(live, sessions.count() - sum(live.values()))


def chosen(address: Address, user: User, found: SessionListFilter) -> QuerySet[Any]:
    """Return the sessions that the address asks for, in its order, without anything that they point to."""
    sessions = whose(address, user)
    rows: QuerySet[Any] = sessions.finished() if address.finished else sessions.live()
    if kind := kind_of(address):
        rows = rows.filter(session_type=kind)
    rows = narrowed(_matching(rows, address.get("q")[:100]), found)
    order = order_of(address, user)
    if is_cut(address, order):
        newest = in_order(rows, NEWEST_FIRST).values("pk")[:MOST_SORTED]
        rows = ComputeSession.objects.filter(pk__in=newest)
    return in_order(rows, order)


def shown(user: User, columns: Sequence[Column]) -> QuerySet[Any]:
    """Return the visible sessions with what a row of the list shows of them, in two queries."""
    names = {column.name for column in columns}
    wanted = ["session_id", "rank", "status", "progress", "exit_code"]
    kernels = Kernel.objects.only(*wanted)
    if "agent" in names:
        kernels = Kernel.objects.select_related("agent").only(*wanted, "agent__name")
    pointed = ["image", "resource_group", "owner"] + ["project"] * ("project" in names)
    visible: QuerySet[Any] = ComputeSession.objects.visible_to(user)
    return (
        visible.annotate(idle_end=announced_end())
        .select_related(*pointed)
        .defer(*_NEVER_SHOWN)
        .prefetch_related(Prefetch("kernels", kernels))
    )


def pages_of(
    address: Address, user: User, found: SessionListFilter, columns: Sequence[Column], numbers: Numbers
) -> LongPaginator:
    """Return the pages of the list; they are counted only where it is not known how many sessions there are."""
    order = order_of(address, user)
    number = _known(address, found, numbers)
    if number is not None and is_cut(address, order):
        number = min(number, MOST_SORTED)
    return LongPaginator(in_order(shown(user, columns), order), chosen(address, user, found), address.size, number)


def is_cut(address: Address, order: Sequence[str]) -> bool:
    """Return whether the list is sorted so that only its newest ``MOST_SORTED`` are in it."""
    return address.finished and not is_by_time(order)


def type_tabs(address: Address, numbers: Numbers) -> list[Tab]:
    """Return a tab for all sessions, one for each type that people launch, and others only where such sessions live."""
    kinds = [kind for kind in SessionType if kind in _ALWAYS_SHOWN or numbers.live.get(kind)]
    now = kind_of(address)
    tabs = [Tab("", numbers.all_live, address.to(type=""), not now)]
    tabs += [Tab(kind, numbers.live.get(kind, 0), address.to(type=kind), now == kind) for kind in kinds]
    return tabs


def _known(address: Address, found: SessionListFilter, numbers: Numbers) -> int | None:
    if address.get("q") or any(found.form.cleaned_data.values()):
        return None
    kind = kind_of(address)
    if address.finished:
        return None if kind else numbers.ended
    return numbers.live.get(kind, 0) if kind else numbers.all_live


def _matching(rows: QuerySet[Any], words: str) -> QuerySet[Any]:
    for word in words.replace("\0", "").split():
        # Looked up in the small tables first: joined, every session would look there. What is not found there is not
        # asked of every session either.
        images = list(Image.objects.filter(name__icontains=word).values_list("pk", flat=True))
        owners = list(User.objects.filter(email__icontains=word).values_list("pk", flat=True)[:_MOST_OWNERS])
        rows = rows.filter(Q(name__icontains=word) | Q(image__in=images) | Q(owner__in=owners))
    return rows
