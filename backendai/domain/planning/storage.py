"""Reads the storage hosts that sessions need and agents offer, for the scheduler."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence, Set
from typing import NamedTuple
from uuid import UUID

from backendai.base.db.bulk import among
from backendai.base.wire.capabilities import Capability
from backendai.domain.compute.models import SessionMount
from backendai.domain.compute.services.requests.mounts import ResolvedMount
from backendai.domain.storage.models import HostOnAgent
from backendai.domain.storage.status import Rights
from backendai.scheduler.capacity.storage import HOME, PART, VIEW
from backendai.scheduler.snapshot import StorageNeed


class Offer(NamedTuple):
    """The features of storage hosts that an agent offers. ``faults``: pairs of a host that it cannot mount, and why."""

    features: frozenset[str] = frozenset()
    faults: tuple[tuple[str, str], ...] = ()


NO_OFFER = Offer()
_Folder = tuple[str, str, Set[str]]  # name, storage host, further features of the host


def storage_needs_of(session_ids: Sequence[UUID]) -> dict[UUID, StorageNeed]:
    """Return the storage needs of these sessions, by session id. Sessions whose folders are all mounted automatically
    have no needs and are missing. One query."""
    if not session_ids:
        return {}
    found: dict[UUID, list[_Folder]] = defaultdict(list)
    mounts = SessionMount.objects.filter(session__in=among(session_ids), is_automatic=False, folder__isnull=False)
    columns = mounts.order_by("folder_name").values_list(
        "session_id", "folder_name", "folder__host__name", "rights", "sub_path", "holds_homes"
    )
    for session_id, folder, host, rights, sub_path, holds_homes in columns:
        features = _features(rights, sub_path) | ({HOME} if holds_homes else set())
        found[session_id].append((folder, host, features))
    return {session_id: _need(rows) for session_id, rows in found.items()}


def storage_need(mounts: Iterable[ResolvedMount]) -> StorageNeed | None:
    """Return the storage needs of a session before its launch; None if it needs none."""
    rows = [(one.folder_name, one.host, _features(one.rights, one.sub_path)) for one in mounts if not one.is_automatic]
    return _need(rows) if rows else None


def storage_offers(agent_ids: Collection[UUID]) -> dict[UUID, Offer]:
    """Return the features and faults of storage hosts, by agent. Agents that report no host are missing. One query."""
    features: dict[UUID, set[str]] = defaultdict(set)
    faults: dict[UUID, list[tuple[str, str]]] = defaultdict(list)
    rows = HostOnAgent.objects.filter(agent__in=among(agent_ids)).order_by("host__name")
    columns = rows.values_list(
        "agent_id", "host__name", "fault", "can_read_only", "can_sub_path", "agent__capabilities"
    )
    for agent_id, host, fault, can_read_only, can_sub_path, capabilities in columns:
        if fault:
            faults[agent_id].append((host, fault))
            continue
        features[agent_id] |= {host}
        features[agent_id] |= {f"{host}{VIEW}"} if can_read_only else set()
        features[agent_id] |= {f"{host}{PART}"} if can_sub_path else set()
        features[agent_id] |= {f"{host}{HOME}"} if Capability.HOMES in (capabilities or ()) else set()
    return {pk: Offer(frozenset(features[pk]), tuple(faults[pk])) for pk in {*features, *faults}}


def _features(rights: str, sub_path: str) -> set[str]:
    return ({VIEW} if rights == Rights.VIEW else set()) | ({PART} if sub_path else set())


def _need(rows: Sequence[_Folder]) -> StorageNeed:
    features = {f"{host}{feature}" for _, host, needed in rows for feature in ("", *needed)}
    return StorageNeed(frozenset(features), tuple(sorted({(folder, host) for folder, host, _ in rows})))
