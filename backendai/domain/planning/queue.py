"""Reads the pending sessions of one resource group from the database in the scheduler's form."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, NamedTuple
from uuid import UUID

from django.db.models import Exists, F, OuterRef, Q, QuerySet, TextField, Window
from django.db.models.functions import Cast, RowNumber

from backendai.base.core.session_kinds import KINDS
from backendai.base.db.bulk import list_of, listed, raw_time, time_of
from backendai.domain.catalog.models import Image
from backendai.domain.cluster.models import ResourceGroup
from backendai.domain.compute.models import ComputeSession, Kernel
from backendai.domain.compute.services.life.end_times import longest_runs
from backendai.domain.compute.services.status.ledger import slots_of
from backendai.domain.compute.status import LIVE, TERMINAL, ClusterMode, Result, Status, When
from backendai.domain.planning.storage import storage_needs_of
from backendai.scheduler.snapshot import (
    Dependency,
    DependencyState,
    Holder,
    ImageBuild,
    KernelView,
    SessionView,
    StorageNeed,
)

MOST_PER_PASS = 10_000
_NEWEST_FIRST = frozenset({"lifo"})
Broken = tuple[UUID, Exception]
KernelRow = tuple[UUID, str, UUID | None]  # id, amounts, the kernel's own image


class Row(NamedTuple):
    """The columns of one pending session. Lists of agents are JSON text, as most of them are empty."""

    id: UUID
    name: str
    created_at: datetime | float  # input of ``time_of``
    priority: int
    starts_at: datetime | None
    image_id: UUID
    attempts: int
    session_type: str
    access_key: str
    owner_id: UUID
    project_id: UUID
    placement: str
    launch_id: UUID | None
    cluster_mode: str
    batch_timeout: timedelta | None
    overtaken_since: datetime | None
    project__domain_id: int
    mount_count: int
    avoid_agents: str
    designated_agents: str


class Newcomer(NamedTuple):
    """A session that is not launched yet. ``kernels``: each kernel's id, its amounts as JSON text, and its image if it
    differs from the session's. ``depends_on``: ids of dependencies; ``depends_when``: how these must have ended."""

    row: Row
    kernels: tuple[KernelRow, ...]
    depends_on: tuple[UUID, ...] = ()
    storage: StorageNeed | None = None
    depends_when: str = When.SUCCESS.value


class Queue:
    """The sessions that a pass considers: up to ``MOST_PER_PASS`` pending ones, and ``newcomers``. ``is_partial``: more
    sessions of the resource group are pending than the pass considers."""

    def __init__(
        self, rows: Sequence[Row], newcomers: Sequence[Newcomer], *, with_ends: bool, is_partial: bool = False
    ) -> None:
        ids = [row.id for row in rows]
        self.is_partial = is_partial
        self.rows = [*rows, *(each.row for each in newcomers)]
        self._kernels = _kernels_of(ids)
        self._dependencies = dependencies_of(ids)
        self._storage = storage_needs_of([row.id for row in rows if row.mount_count])
        self._longest: dict[UUID, timedelta | None] = {row.id: row.batch_timeout for row in rows}
        if with_ends:
            self._longest.update(longest_runs(ids))
        for newcomer in newcomers:
            self._kernels[newcomer.row.id] = list(newcomer.kernels)
            self._dependencies[newcomer.row.id] = _dependencies_on(newcomer.depends_on, newcomer.depends_when)
            self._longest[newcomer.row.id] = newcomer.row.batch_timeout
            if newcomer.storage:
                self._storage[newcomer.row.id] = newcomer.storage
        own = {image_id for kernels in self._kernels.values() for _, _, image_id in kernels if image_id}
        wanted = list_of({row.image_id for row in self.rows} | own)
        self.images = {image.pk: image for image in _images(wanted)}

    @property
    def launches(self) -> set[UUID]:
        """The ids of the launches whose sessions have a placement preference."""
        return {row.launch_id for row in self.rows if row.launch_id and row.placement}

    @property
    def mounts_folders(self) -> bool:
        """Whether a session needs agents that can mount its folders."""
        return bool(self._storage)

    @property
    def built_here(self) -> dict[str, Image]:
        """The images that were built or saved locally and that no registry has, by reference."""
        return {image.reference: image for image in self.images.values() if image.is_on_nodes_only}

    @property
    def fetched(self) -> list[Image]:
        """The images that agents pull from registries."""
        return [image for image in self.images.values() if not image.is_on_nodes_only]

    def views(
        self, builds: Mapping[UUID, ImageBuild], *, somewhere_short: bool = False
    ) -> tuple[tuple[SessionView, ...], tuple[Broken, ...]]:
        """Return the sessions as scheduler views, and the ids of unreadable sessions with their errors. ``builds``:
        progress of image builds. ``somewhere_short``: an agent cannot pull images, so the views name their images."""
        holders: dict[tuple[str, UUID], Holder] = {}
        views: list[SessionView] = []
        broken: list[Broken] = []
        for row in self.rows:
            holder = holders.get((row.access_key, row.project_id))
            if not KINDS[row.session_type].counts:
                holder = _NO_HOLDER
            elif holder is None or holder.user != f"user:{row.owner_id}":
                holder = holders[row.access_key, row.project_id] = _holder(row)
            try:
                if kernels := self._kernels.get(row.id):
                    views.append(self._view(row, kernels, holder, builds, somewhere_short))
            except Exception as error:  # an error of one session must not stop the others
                broken.append((row.id, error))
        return tuple(views), tuple(broken)

    def _view(
        self,
        row: Row,
        kernels: Sequence[KernelRow],
        holder: Holder,
        builds: Mapping[UUID, ImageBuild],
        somewhere_short: bool,
    ) -> SessionView:
        used = [self.images[own or row.image_id] for _, _, own in kernels]
        image = next((one for one in used if one.pk in builds), used[0])
        views = [_kernel_view(*each, somewhere_short) for each in zip(kernels, used, strict=True)]
        return SessionView(
            id=row.id,
            name=row.name,
            created_at=time_of(row.created_at),
            priority=row.priority,
            kernels=tuple(views),
            starts_at=row.starts_at,
            image=image.name,
            image_build=builds.get(image.pk),
            attempts=row.attempts,
            avoid_agents=_ids(row.avoid_agents),
            session_type=row.session_type,
            holder=holder,
            dependencies=tuple(self._dependencies.get(row.id, ())),
            designated=_ids(row.designated_agents),
            placement=row.placement,
            launch=str(row.launch_id) if row.launch_id else "",
            multi_node=row.cluster_mode == ClusterMode.MULTI_NODE,
            longest_run=self._longest.get(row.id),
            overtaken_since=row.overtaken_since,
            storage=self._storage.get(row.id),
        )


def _kernel_view(kernel: KernelRow, image: Image, somewhere_short: bool) -> KernelView:
    on_node = image.reference if image.is_on_nodes_only or somewhere_short else ""
    return KernelView(kernel[0], slots_of(kernel[1]), image.architecture, on_node)


def read_queue(group: ResourceGroup, now: datetime) -> Queue | None:
    """Return the group's pending sessions; None if there are none. Four to seven queries; one if there are none.

    If more than ``MOST_PER_PASS`` are pending, one more query selects sessions that can start at ``now``, equally many
    of each owner.
    """
    order = order_of(group.sequence)
    found = list(_pending_in(group.pk, order, (MOST_PER_PASS + 1,)))
    is_partial = len(found) > MOST_PER_PASS
    if is_partial:
        found = list(columns(_in_turn(group.pk, order, now)).order_by(*order))
    rows = [Row._make(row) for row in found]
    if not rows and not is_partial:
        return None
    return Queue(rows, (), with_ends=group.backfill, is_partial=is_partial)


def order_of(sequence: str) -> tuple[str, ...]:
    """Return the order of pending sessions for the database: that of ``scheduler.sequence.turns`` before a sequence
    that looks at holdings changes it."""
    sign = "-" if sequence in _NEWEST_FIRST else ""
    return "-priority", f"{sign}created_at", f"{sign}pk"


def due(now: datetime) -> Q:
    """Return a query condition: the session's start time has been reached."""
    return Q(starts_at=None) | Q(starts_at__lte=now)


def waits_for_others() -> Exists:
    """Return a query condition: the session depends on one that has not ended."""
    through = ComputeSession.depends_on.through.objects
    return Exists(through.filter(from_computesession=OuterRef("pk"), to_computesession__status__in=sorted(LIVE)))


def _in_turn(group_id: int, order: Sequence[str], now: datetime) -> QuerySet[Any, Any]:
    """Return ``MOST_PER_PASS`` startable sessions: the first of each owner, then the second of each, and so on. So
    owners have equal shares, and unused shares go to other owners."""
    sessions = ComputeSession.objects.pending().filter(due(now), ~waits_for_others(), resource_group=group_id)
    turn = Window(RowNumber(), partition_by=F("owner_id"), order_by=list(order))
    chosen = sessions.alias(turn=turn).order_by("turn", *order).values("pk")[:MOST_PER_PASS]
    return ComputeSession.objects.filter(pk__in=chosen)


def _pending_in(group_id: int, order: Sequence[str], most: tuple[int]) -> QuerySet[Any, Any]:
    return columns(ComputeSession.objects.pending().filter(resource_group=group_id)).order_by(*order)[: most[0]]


def columns(sessions: QuerySet[Any, Any]) -> QuerySet[Any, Any]:
    """Return the columns of these sessions for ``Row``."""
    expressions = {"created_at": raw_time("created_at")} | {
        name: Cast(name, TextField()) for name in ("avoid_agents", "designated_agents")
    }
    return sessions.values_list(*[expressions.get(name, name) for name in Row._fields])


def _kernels_of(session_ids: Sequence[UUID]) -> dict[UUID, list[KernelRow]]:
    kernels: dict[UUID, list[KernelRow]] = defaultdict(list)
    for kernel_id, session_id, slots, image_id in _kernels_in(list_of(session_ids)) if session_ids else ():
        kernels[session_id].append((kernel_id, slots, image_id))
    return kernels


def dependencies_of(session_ids: Sequence[UUID]) -> dict[UUID, list[Dependency]]:
    """Return the dependencies of each session, by its id. One query."""
    found: dict[UUID, list[Dependency]] = defaultdict(list)
    for session_id, when, pk, name, status, result in _waited_for_by(list_of(session_ids)) if session_ids else ():
        found[session_id].append(Dependency(pk, name, _state(status, result, when), when))
    return found


def _dependencies_on(ids: Sequence[UUID], when: str) -> list[Dependency]:
    if not ids:
        return []
    rows = ComputeSession.objects.filter(pk__in=ids).order_by("pk").values_list("pk", "name", "status", "result")
    return [Dependency(pk, name, _state(status, result, when), when) for pk, name, status, result in rows]


def _state(status: str, result: str, when: str) -> DependencyState:
    """Return whether a session is live, or has ended as required."""
    if status not in TERMINAL:
        return DependencyState.LIVE
    well = status == Status.TERMINATED and result == Result.SUCCESS
    is_met = when == When.ANY or well == (when == When.SUCCESS)
    return DependencyState.SUCCEEDED if is_met else DependencyState.FAILED


def _holder(row: Row) -> Holder:
    return Holder(
        user=f"user:{row.owner_id}",
        key_pair=f"key-pair:{row.access_key}" if row.access_key else "",
        project=f"project:{row.project_id}",
        domain=f"domain:{row.project__domain_id}",
    )


def _ids(text: str) -> frozenset[UUID]:
    return _NONE if text == "[]" else frozenset(map(UUID, json.loads(text)))


def _kernels_in(sessions: str) -> QuerySet[Any, Any]:
    rows = Kernel.objects.filter(session__in=listed(sessions), status=Status.PENDING).order_by("rank")
    return rows.values_list("pk", "session_id", Cast("slots", TextField()), "image_id")


def _waited_for_by(sessions: str) -> QuerySet[Any, Any]:
    through = ComputeSession.depends_on.through.objects.filter(from_computesession__in=listed(sessions))
    columns = [f"to_computesession__{name}" for name in ("pk", "name", "status", "result")]
    return through.order_by("pk").values_list("from_computesession", "from_computesession__depends_when", *columns)


_NONE: frozenset[UUID] = frozenset()
_NO_HOLDER = Holder()


def _images(ids: Any) -> QuerySet[Any, Any]:
    return Image.objects.filter(pk__in=listed(ids)).order_by()
