"""Describes the mounts of sessions for agents and the scheduler."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from uuid import UUID

from backendai.base.core.errors import UserError
from backendai.base.core.messages import Message
from backendai.base.core.session_kinds import KINDS
from backendai.base.db.bulk import among
from backendai.base.paths.mount_targets import HOME, absolute_target
from backendai.base.wire.mounts import MountSpec
from backendai.domain.compute.models import SessionMount
from backendai.domain.compute.services.requests.mounts import ResolvedMount
from backendai.domain.compute.spec import SessionSpec
from backendai.domain.storage.models import HostOnAgent
from backendai.domain.storage.status import Rights

_LOST = UUID(int=0)


@dataclass(frozen=True, slots=True)
class Mounts:
    """The mounts of some sessions, and the state of their storage hosts on each agent."""

    by_session: Mapping[UUID, Sequence[SessionMount]]
    offers: Mapping[tuple[UUID, UUID], HostOnAgent]  # key: agent and storage host

    def of_session(self, session_id: UUID) -> Sequence[SessionMount]:
        """Return the mounts of a session."""
        return self.by_session.get(session_id, ())

    def specs_for(self, session_id: UUID, agent_id: UUID, role: str) -> list[MountSpec]:
        """Return the mounts that the agent makes for a role's kernels. Automatic mounts that it cannot make are left
        out."""
        return [_spec(mount) for mount in self._mounted(session_id, agent_id, role)]

    def start_for(self, session_id: UUID, agent_id: UUID, start_in: str, role: str) -> str:
        """Return the working directory of a role's programs on the agent; empty if the agent does not mount that
        folder."""
        return start_in if any(one.target == start_in for one in self._mounted(session_id, agent_id, role)) else ""

    def left_out(self, session_id: UUID, agent_id: UUID) -> list[SessionMount]:
        """Return the session's automatic mounts that the agent cannot make."""
        mounts = self.of_session(session_id)
        return [mount for mount in mounts if mount.is_automatic and not self._can(mount, agent_id)]

    def _mounted(self, session_id: UUID, agent_id: UUID, role: str) -> list[SessionMount]:
        mounts = [mount for mount in self.of_session(session_id) if mount.role in ("", role)]
        return [mount for mount in mounts if not mount.is_automatic or self._can(mount, agent_id)]

    def _can(self, mount: SessionMount, agent_id: UUID) -> bool:
        offer = self.offers.get((agent_id, mount.folder.host_id)) if mount.folder else None
        return offer is not None and not offer.fault and (offer.can_read_only or mount.rights == Rights.EDIT)


def read_mounts(session_ids: Collection[UUID]) -> Mounts:
    """Return the mounts of these sessions. Two queries; none for no sessions."""
    by_session: dict[UUID, list[SessionMount]] = defaultdict(list)
    if not session_ids:
        return Mounts(by_session, {})
    rows = SessionMount.objects.filter(session__in=among(session_ids)).select_related("folder__host")
    for mount in rows.order_by("target"):
        by_session[mount.session_id].append(mount)
    hosts = {mount.folder.host_id for mounts in by_session.values() for mount in mounts if mount.folder}
    offers = HostOnAgent.objects.filter(host__in=hosts)
    return Mounts(by_session, {(offer.agent_id, offer.host_id): offer for offer in offers})


def start_of(spec: SessionSpec, mounts: Sequence[ResolvedMount]) -> str:
    """Return the mount path of the folder in which programs start; empty: the home. By default the only folder that
    is mounted for writing, so that new files are kept. Raises UserError if the session does not mount that folder."""
    if not spec.start_in:
        return _usual_start(spec, mounts)
    if spec.start_in == HOME:
        return ""
    for mount in mounts:
        if spec.start_in in (mount.folder_name, str(mount.folder_id)):
            return mount.target
    for mount in mounts:
        if mount.target == absolute_target("", spec.start_in):
            return mount.target
    text = Message(
        "The session mounts no folder {start_in} to start in: name one of its mounts.",
        start_in=repr(spec.start_in[:64]),
    )
    raise UserError(text, field="start_in", code="unknown-start")


def _usual_start(spec: SessionSpec, mounts: Sequence[ResolvedMount]) -> str:
    if not KINDS[spec.session_type].is_launched:
        return ""  # replicas and file access have fixed paths
    writable = [mount.target for mount in mounts if mount.rights == Rights.EDIT and not mount.is_automatic]
    return writable[0] if len(writable) == 1 else ""


def _spec(mount: SessionMount) -> MountSpec:
    # None if the restored database lacks the folder. No agent has an empty host, so the kernel does not start.
    folder = mount.folder
    return MountSpec(
        host=folder.host.name if folder else "",
        folder_id=folder.pk if folder else _LOST,
        folder_name=mount.folder_name,
        sub_path=mount.sub_path,
        target=mount.target,
        rights="edit" if mount.rights == Rights.EDIT else "view",
        is_automatic=mount.is_automatic,
        linked_path=folder.linked_path if folder else "",
    )
