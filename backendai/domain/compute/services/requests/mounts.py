"""Resolves the folders of a launch to mounts with paths and rights, places them in the container, and writes the
mounts. A mounted folder cannot be moved to the trash."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

from django.db.models import Case, Exists, F, OuterRef, Q, QuerySet, When

from backendai.base.core.errors import UserError
from backendai.base.core.messages import Message
from backendai.base.core.session_kinds import KINDS
from backendai.base.db.bulk import among
from backendai.base.paths.home_paths import clash
from backendai.base.paths.mount_targets import (
    HOME,
    absolute_target,
    below_home,
    overlap,
    sub_path_problem,
    target_problem,
)
from backendai.base.wire.homes import StoredHome
from backendai.base.wire.mounts import MountSpec
from backendai.domain.accounts.homes import Residents, homes_of
from backendai.domain.accounts.models import Project, User
from backendai.domain.cluster.models import Agent, ResourceGroup
from backendai.domain.compute.models import ComputeSession, SessionMount
from backendai.domain.compute.spec import MountRequest, SessionSpec
from backendai.domain.storage.models import Folder, HostOnAgent
from backendai.domain.storage.status import Rights, Usage

MOST_MOUNTS = 32
_FIELD = "mounts"
_GRANTED = {"manage": Rights.EDIT, "edit": Rights.EDIT, "view": Rights.VIEW}


@dataclass(frozen=True, slots=True)
class ResolvedMount:
    """A validated mount: folder, path inside the folder, path inside the kernel, and rights."""

    folder_id: UUID
    folder_name: str
    host: str
    sub_path: str
    target: str
    rights: str
    is_automatic: bool = False
    role: str = ""  # empty: all kernels mount it


def resolve_mounts(owner: User, project: Project, spec: SessionSpec) -> list[ResolvedMount]:
    """Return the requested and the automatic mounts of the owner's session. At most ``MOST_MOUNTS``: further automatic
    ones are left out.

    Folders whose names begin with a dot are mounted automatically, unless their paths collide. Raises UserError with
    the field ``mounts``. One query, and up to two more if there are folders.
    """
    if len(spec.mounts) > MOST_MOUNTS:
        text = Message(
            "{number} folders given; a session mounts at most {most_mounts}.",
            number=len(spec.mounts),
            most_mounts=MOST_MOUNTS,
        )
        raise UserError(text, field=_FIELD, code="too-many-mounts", limit=MOST_MOUNTS)
    if not spec.mounts and not Folder.objects.mountable().filter(_automatic_for(owner, project)).exists():
        return []  # most launches: to compile the query below takes longer than all else that a launch does
    offered = _offered(owner, project, spec.mounts)
    found: list[ResolvedMount] = []
    for request in spec.mounts:
        mount = _resolve(request, _named(owner, project, offered, request.folder))
        if other := next((one for one in found if overlap(one.target, mount.target)), None):
            raise _refused(_overlap_text(mount, other), "mount-path-taken", target=mount.target)
        found.append(mount)
    if not found and not any(folder.name.startswith(".") for folder in offered):
        return []
    files = _files_of_home(owner, project, spec)
    for mount in found:
        if taken := _file_in_the_way(mount.target, files):
            text = Message(
                "{target} conflicts with the file {taken} of the home folder: choose another path.",
                target=mount.target,
                taken=taken,
            )
            raise _refused(text, "mount-path-taken", target=mount.target)
    return [*found, *_automatic(owner, offered, found, files)][:MOST_MOUNTS]


def annotate_by_name(rows: QuerySet[Any], folder: Folder, *, owner: str, project: str) -> QuerySet[Any]:
    """Return the rows whose owner may mount the folder, with a flag ``by_name``. The flag says whether the folder's
    name can refer to this folder in a launch by that owner in the row's project, as several folders can have the same
    name. ``owner``, ``project``: names of columns."""
    offered = Folder.objects.offered_to_column(owner)
    others = offered.filter(name=folder.name).exclude(pk=folder.pk)
    of_owner, of_project = Exists(others.filter(user=OuterRef(owner))), Exists(others.filter(project=OuterRef(project)))
    if folder.project_id is None:
        means = Case(When(**{owner: folder.user_id}, then=True), default=~of_owner & ~of_project)
    else:
        means = Case(When(of_owner, then=False), When(**{project: folder.project_id}, then=True), default=~of_project)
    offered_rows: QuerySet[Any] = rows.filter(Exists(offered.filter(pk=folder.pk))).annotate(by_name=means)
    return offered_rows


def refers_to_folder(folder: Folder, names: Collection[str], *, by_name: bool) -> bool:
    """Return whether one of these names or ids refers to the folder. ``by_name``: see ``annotate_by_name``."""
    return (by_name and folder.name in names) or any(_uuid(name) == folder.pk for name in names)


def take_mounts(mounts: Sequence[ResolvedMount]) -> list[ResolvedMount]:
    """Return the mounts whose folders are ready, and lock these folders.

    A locked folder cannot be moved to the trash until the transaction ends. Automatic mounts of other folders are left
    out; requested ones raise UserError.
    """
    if not mounts:
        return []
    ready = ready_folders({mount.folder_id for mount in mounts})
    for mount in mounts:
        if mount.folder_id not in ready and not mount.is_automatic:
            text = Message(
                "Folder {folder_name} is no longer ready: restore it, or launch without it.",
                folder_name=mount.folder_name,
            )
            raise _refused(text, "folder-not-ready", folder=mount.folder_name)
    return [mount for mount in mounts if mount.folder_id in ready]


def ready_folders(ids: Collection[UUID]) -> set[UUID]:
    """Lock the ready ones among these folders, increment their versions, and return their ids.

    A concurrent move to the trash then fails. The next pass writes the versions to the disks, where they fence off
    orders of older databases.
    """
    if not ids:
        return set()
    rows = Folder.objects.mountable().filter(pk__in=sorted(ids)).order_by("pk")  # sorted, so that no deadlock occurs
    ready = set(rows.select_for_update().values_list("pk", flat=True))
    Folder.objects.filter(pk__in=ready).update(version=F("version") + 1, needs_push=True)
    return ready


def write_mounts(session: ComputeSession, mounts: Iterable[ResolvedMount]) -> None:
    """Write the mounts of a new session."""
    SessionMount.objects.bulk_create(
        SessionMount(
            session_id=session.pk,
            folder_id=mount.folder_id,
            folder_name=mount.folder_name,
            sub_path=mount.sub_path,
            target=mount.target,
            rights=mount.rights,
            role=mount.role,
            is_automatic=mount.is_automatic,
            created_at=session.created_at,
        )
        for mount in mounts
    )


def _offered(owner: User, project: Project, requests: Sequence[MountRequest]) -> list[Any]:
    """Return the requested folders, and the owner's and the project's folders whose names begin with a dot."""
    wanted = _automatic_for(owner, project)
    if requests:
        names = [request.folder for request in requests]
        wanted |= Q(name__in=names) | Q(pk__in=[pk for name in names if (pk := _uuid(name))])
    rows = Folder.objects.offered_to(owner).filter(wanted).select_related("host")
    return list(rows.order_by("name", "pk"))


def _automatic_for(owner: User, project: Project) -> Q:
    return Q(name__startswith=".") & (Q(user=owner) | Q(project=project))


def _named(owner: User, project: Project, offered: Sequence[Any], name: str) -> Any:
    """Return the folder with this id or name: the owner's first, then the project's, then others."""
    pk = _uuid(name)
    found = [folder for folder in offered if folder.pk == pk] if pk else []
    found = found or [folder for folder in offered if folder.name == name]
    for nearest in (lambda one: one.user_id == owner.pk, lambda one: one.project_id == project.pk, lambda one: True):
        candidates = [folder for folder in found if nearest(folder)]
        if len(candidates) > 1:
            ids = ", ".join(str(folder.pk) for folder in candidates[:4])
            text = Message(
                "{number} folders are called {name}: name one by its id ({ids}).",
                number=len(candidates),
                name=name,
                ids=ids,
            )
            raise _refused(text, "ambiguous-folder", wanted=name)
        if candidates:
            return candidates[0]
    raise _unknown(owner, name)


def _unknown(owner: User, name: str) -> UserError:
    pk = _uuid(name)
    wanted = Q(pk=pk) if pk else Q(name=name)
    other = Folder.objects.visible_to(owner).filter(wanted).order_by("-changed_at").first()
    if other is not None:
        text = Message(
            "Folder {other} is {status}: only ready folders can be mounted.",
            other=other.name,
            status=other.get_status_display(),
        )
        return _refused(text, "folder-not-ready", folder=other.name)
    known = list(Folder.objects.offered_to(owner).order_by("name").values_list("name", flat=True)[:10])
    text = Message("Folder {name} not found; available: {known}.", name=repr(name[:64]), known=known or Message("none"))
    return _refused(text, "unknown-folder", wanted=name[:64])


def _resolve(item: MountRequest, folder: Any) -> ResolvedMount:
    granted = Rights.VIEW if folder.linked_path else _GRANTED[folder.rights]
    rights = item.rights or _usual_rights(folder, granted)
    if rights not in (Rights.VIEW, Rights.EDIT):
        text = Message("{rights} are not rights: use view or edit, or leave it empty.", rights=repr(item.rights[:16]))
        raise _refused(text, "invalid-rights")
    if rights == Rights.EDIT and granted == Rights.VIEW:
        text = Message("Folder {folder} can only be mounted read-only: you may view it.", folder=folder.name)
        raise _refused(text, "rights-not-granted", folder=folder.name, granted=str(granted))
    if problem := sub_path_problem(item.path):
        raise _refused(
            Message(
                "{path} in folder {folder}: {problem}", path=repr(item.path[:64]), folder=folder.name, problem=problem
            ),
            "invalid-sub-path",
        )
    target = absolute_target(folder.name, item.target)
    if problem := target_problem(target):
        raise _refused(f"{target[:64]!r}: {problem}", "invalid-mount-path", target=target[:255])
    return ResolvedMount(folder.pk, folder.name, folder.host.name, item.path, target, str(rights))


def _usual_rights(folder: Any, granted: Rights) -> Rights:
    """Return the rights of a mount without requested rights. Models are mounted read-only, as many people read them."""
    return Rights.VIEW if folder.usage == Usage.MODEL else granted


def _automatic(
    owner: User, offered: Sequence[Any], requested: Sequence[ResolvedMount], files: Sequence[str]
) -> list[ResolvedMount]:
    """Return the automatic mounts: folders whose names begin with a dot, the owner's first. Requested folders are left
    out, and so are folders whose paths collide with another mount or a file."""
    found: list[ResolvedMount] = []
    for folder in sorted(offered, key=lambda one: one.user_id != owner.pk):
        target = absolute_target(folder.name, "")
        if not folder.name.startswith(".") or any(one.folder_id == folder.pk for one in requested):
            continue
        if target_problem(target) or _file_in_the_way(target, files):
            continue
        if not any(overlap(one.target, target) for one in (*requested, *found)):
            rights = _usual_rights(folder, Rights.VIEW if folder.linked_path else _GRANTED[folder.rights])
            found.append(ResolvedMount(folder.pk, folder.name, folder.host.name, "", target, str(rights), True))
    return found


def _files_of_home(owner: User, project: Project, spec: SessionSpec) -> list[str]:
    residents = Residents(owner.pk, project.pk, project.domain_id)
    kept = [file.path for file in homes_of([residents])[residents].files]
    return [*(file.path for file in spec.files), *kept]


def _file_in_the_way(target: str, files: Iterable[str]) -> str:
    inside = below_home(target)
    return next((path for path in files if clash(inside, path)), "") if inside else ""


def _overlap_text(mount: ResolvedMount, other: ResolvedMount) -> str:
    if mount.target == other.target:
        return Message(
            "Folders {other} and {folder} would both be at {target}: change one path.",
            other=other.folder_name,
            folder=mount.folder_name,
            target=mount.target,
        )
    return Message(
        "{target} and {other} overlap: choose paths beside each other.",
        target=mount.target,
        other=other.target,
    )


def _refused(text: str, code: str, **details: object) -> UserError:
    return UserError(text, field=_FIELD, code=code, **details)


def _uuid(text: str) -> UUID | None:
    try:
        return UUID(text)
    except ValueError:
        return None


_LOST = UUID(int=0)


@dataclass(frozen=True, slots=True)
class Mounts:
    """The mounts of some sessions, and the state of their storage hosts on each agent."""

    by_session: Mapping[UUID, Sequence[SessionMount]]
    offers: Mapping[tuple[UUID, UUID], HostOnAgent]  # key: agent and storage host
    homes: Mapping[UUID, Folder] = field(default_factory=dict)  # of stopped sessions

    def of_session(self, session_id: UUID) -> Sequence[SessionMount]:
        """Return the mounts of a session."""
        return self.by_session.get(session_id, ())

    def home_for(self, session: ComputeSession, hostname: str) -> StoredHome | None:
        """Return where a kernel's home was stored as the session stopped; None if it never stopped."""
        folder = self.homes.get(session.pk)
        return stored_home(folder, hostname) if folder and session.stopped_at else None

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
    homes: dict[UUID, Folder] = {}
    for mount in rows.order_by("target"):
        if not mount.holds_homes:
            by_session[mount.session_id].append(mount)
        elif mount.folder:
            homes[mount.session_id] = mount.folder
    hosts = {mount.folder.host_id for mounts in by_session.values() for mount in mounts if mount.folder}
    offers = HostOnAgent.objects.filter(host__in=hosts)
    return Mounts(by_session, {(offer.agent_id, offer.host_id): offer for offer in offers}, homes)


def stored_home(folder: Folder, hostname: str) -> StoredHome:
    """Return where the home of a stopped session's kernel is in this folder."""
    file = f"home-{hostname}.tar"
    return StoredHome(host=folder.host.name, folder_id=folder.pk, folder_name=folder.name, file=file)


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


@dataclass(frozen=True, slots=True)
class Place:
    """A resource group, and the folders that a session there opens: the user's own folders first, then by name."""

    group: ResourceGroup
    folders: Sequence[Any]


def place_for(owner: User, groups: Sequence[ResourceGroup]) -> Place:
    """Return the group whose best agent mounts most of the owner's folders, and the mounted folders. Of equal groups,
    the first one.

    If no agent mounts any folder, the first group and all folders are returned, and the scheduler gives the wait
    reason. At most ``MOST_MOUNTS`` folders. ``groups`` must not be empty. Two queries.
    """
    folders = folders_of(owner)
    best = Place(groups[0], ())
    offers = _offers(groups)
    for group in groups:
        for offered in offers[group.pk]:
            there = [folder for folder in folders if offered.get(folder.host_id, 0) >= _needs(folder)]
            if len(there) > len(best.folders):
                best = Place(group, there)
    return Place(best.group, (best.folders or folders)[:MOST_MOUNTS])


def folders_of(owner: User) -> list[Any]:
    """Return the folders to show to file clients, each with the user's ``rights``: own folders first, then by name.
    Folders whose names begin with a dot are left out."""
    rows = Folder.objects.offered_to(owner).exclude(name__startswith=".").order_by("name", "pk")
    return sorted(rows, key=lambda one: one.user_id != owner.pk)


_ANY, _READ_ONLY = 1, 2  # what an agent can do with the folders of a host


def _needs(folder: Any) -> int:
    return _READ_ONLY if folder.rights == Rights.VIEW else _ANY


def _offers(groups: Sequence[ResourceGroup]) -> Mapping[int, list[Mapping[UUID, int]]]:
    """Return the reachable agents of each group, sorted by name. Each agent is a map from a storage host to ``_ANY``,
    or to ``_READ_ONLY`` if it can also mount read-only."""
    rows = HostOnAgent.objects.filter(
        agent__resource_group__in=groups, agent__status=Agent.Status.ALIVE, agent__schedulable=True
    ).order_by("agent__name")
    found: dict[int, dict[UUID, dict[UUID, int]]] = defaultdict(dict)
    columns = rows.values_list("agent__resource_group_id", "agent_id", "host_id", "fault", "can_read_only")
    for group_id, agent_id, host_id, fault, can_read_only in columns:
        if not fault:
            found[group_id].setdefault(agent_id, {})[host_id] = _READ_ONLY if can_read_only else _ANY
    return defaultdict(list, {group_id: list(agents.values()) for group_id, agents in found.items()})
