"""Validates launch requests. The form, REST and the review use this one validator."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from uuid import UUID

from django.utils import timezone

from backendai.base.core.durations import LATEST
from backendai.base.core.errors import UserError
from backendai.base.core.labels import check_labels, check_note, check_required
from backendai.base.core.messages import Message
from backendai.base.core.names import check_session_name, check_variable_name
from backendai.base.core.service_ports import check_preopen_ports, service_ports_of
from backendai.base.core.session_kinds import KINDS
from backendai.base.core.slots import Slots
from backendai.domain.accounts.models import KeyPair, Project, User
from backendai.domain.accounts.policies.applicable import Limited
from backendai.domain.catalog.models import Image
from backendai.domain.cluster.groups.changes import group_for_launch
from backendai.domain.cluster.groups.session_defaults import SessionDefaults, parse_session_defaults
from backendai.domain.cluster.models import ResourceGroup
from backendai.domain.compute.services.requests.amounts import check_reach, preset_of
from backendai.domain.compute.services.requests.limits import (
    beyond_limits,
    check_small,
    key_pair_of,
    limits_on,
    projects_open,
)
from backendai.domain.compute.services.requests.mounts import ResolvedMount, resolve_mounts, start_of
from backendai.domain.compute.services.requests.roles import CheckedRole, check_roles, roles_of, total_of, with_size
from backendai.domain.compute.services.requests.scheduling import (
    agents_of,
    check_kernels,
    check_scheduling,
    dependencies_of,
    priority_of,
)
from backendai.domain.compute.services.requests.session_files import check_files
from backendai.domain.compute.spec import SessionSpec
from backendai.domain.compute.status import ClusterMode

LARGEST_CLUSTER = 16
_LONGEST_VALUE = 8192
_MOST_CHARACTERS = 2**16  # of all variables: lists of 100 sessions contain them


@dataclass(frozen=True, slots=True)
class Checked:
    """A valid request, with names resolved and exact amounts. ``limited``: the holders with a policy. ``spec``: the
    request with the group's defaults."""

    spec: SessionSpec
    project: Project
    group: ResourceGroup
    roles: list[CheckedRole]
    access_key: str
    priority: int
    depends_on: list[UUID]
    agents: list[str]
    limited: list[Limited]
    mounts: list[ResolvedMount] = field(default_factory=list)
    start_in: str = ""

    @property
    def image(self) -> Image:
        """The image of the main kernel."""
        return self.roles[0].image

    @property
    def slots(self) -> Slots:
        """The amounts of the main kernel."""
        return self.roles[0].slots

    @property
    def shm_bytes(self) -> int:
        """The bytes of shared memory of the main kernel."""
        return self.roles[0].shm_bytes

    @property
    def all_mounts(self) -> list[ResolvedMount]:
        """The folders that every kernel mounts, followed by the folders of single roles."""
        own = [replace(mount, role=role.name) for role in self.roles for mount in role.mounts]
        return [*self.mounts, *own]

    @property
    def total(self) -> Slots:
        """The amounts of all kernels together."""
        return total_of(self.roles)


def check_spec(user: User, spec: SessionSpec, *, actor: User | None = None) -> Checked:
    """Return the launch request with defaults filled in and names resolved.

    ``user``: the session's owner. ``actor``: the administrator who launches it, if not the owner. Raises UserError with
    the field, the number and the limit.
    """
    if spec.name:
        check_session_name(spec.name)
    _check_type(spec)
    check_scheduling(spec)
    _check_environs([spec.environ, *(role.environ for role in spec.roles.values())])
    spec = replace(with_size(spec), labels=check_labels(spec.labels), note=check_note(spec.note))
    _check_cluster(spec)
    check_files(spec.files)
    actor = actor or user
    project = _project(user, spec, actor)
    key_pair = _key_pair(user, spec)
    group = group_for_launch(spec.resource_group, project, key_pair)
    usual = parse_session_defaults(group.session_defaults)
    spec = _with_defaults(spec, usual)
    _check_type_in(group, spec)
    roles = check_roles(user, spec, project, preset_of(user, spec, group), usual.shm)
    check_preopen_ports(spec.preopen_ports, service_ports_of(roles[0].image.effective_labels))
    agents = agents_of(spec, group)
    _check_reach(spec, roles, group, agents)
    depends_on = dependencies_of(user, spec, actor=actor)
    access_key = key_pair.access_key if key_pair else ""
    limited = limits_on(user, project, key_pair)
    check_kernels(spec, limited)
    if KINDS[spec.session_type].is_launched:
        check_required(spec.labels, [key for holder in limited for key in holder.policy.required_labels])
    _check_limits(total_of(roles), limited) if KINDS[spec.session_type].counts else check_small(roles)
    priority = priority_of(spec, limited, usual.priority)
    checked = Checked(spec, project, group, roles, access_key, priority, depends_on, agents, limited)
    mounts = resolve_mounts(user, project, spec)
    return replace(checked, mounts=mounts, start_in=start_of(spec, mounts))


def project_of(user: User, name: str) -> Project | None:
    """Return the user's project with this id or name, including its domain. Without a name: the default project, or
    None if the user has no projects. Raises the same UserError as a launch."""
    if not name and not Project.objects.usable_by(user).exists():
        return None
    return _project(user, SessionSpec(image="", project=name), user)


def place_of(
    user: User, *, project: str = "", resource_group: str = "", actor: User | None = None
) -> tuple[Project, ResourceGroup]:
    """Return the project and the resource group of a launch with these names. Empty names mean the defaults. ``actor``:
    the administrator who launches, if not the user. Raises the same UserError as a launch."""
    spec = SessionSpec(image="", project=project, resource_group=resource_group)
    found = _project(user, spec, actor or user)
    return found, group_for_launch(spec.resource_group, found, _key_pair(user, spec))


def _check_type(spec: SessionSpec) -> None:
    if spec.session_type not in KINDS:
        raise UserError(
            "{session_type} is not a session type: use {values}.",
            session_type=repr(spec.session_type),
            values=" or ".join(KINDS),
            field="type",
            code="invalid-type",
        )
    runs_program = KINDS[spec.session_type].runs_program
    commands = [spec.startup_command, *(role.startup_command for role in spec.roles.values())]
    runs = spec.startup_command.strip() or all(role.startup_command.strip() for role in roles_of(spec).values())
    if runs_program and not runs:
        raise UserError("A batch session needs a command to run.", field="startup_command", code="missing-command")
    if not KINDS[spec.session_type].takes_command and any(command.strip() for command in commands):
        raise UserError("Only batch sessions run a command.", field="startup_command", code="batch-only")
    if not runs_program and spec.starts_at:
        raise UserError("Only batch sessions have a start time.", field="starts_at", code="batch-only")
    if spec.starts_at and spec.starts_at <= timezone.now():
        raise UserError("The start time is in the past.", field="starts_at", code="invalid-date")
    if spec.starts_at and spec.starts_at >= LATEST:
        raise UserError("Write a start time before the year 3000.", field="starts_at", code="invalid-date")
    if any(len(command) > 2**16 for command in commands):
        raise UserError("The command is longer than 64 KiB.", field="startup_command", code="too-long")


def _check_cluster(spec: SessionSpec) -> None:
    if not 1 <= spec.cluster_size <= LARGEST_CLUSTER:
        raise UserError(
            "Choose 1 to {largest_cluster} kernels.",
            largest_cluster=LARGEST_CLUSTER,
            field="cluster_size",
            code="invalid-cluster-size",
        )
    if spec.cluster_size > 1 and not KINDS[spec.session_type].clusters:
        text = Message("A session of type {session_type} has one kernel.", session_type=spec.session_type)
        raise UserError(text, field="cluster_size", code="single-kernel-only")
    if spec.cluster_mode not in ClusterMode.values:
        raise UserError(
            "{cluster_mode} is not a cluster mode: use {values}.",
            cluster_mode=repr(spec.cluster_mode),
            values=" or ".join(ClusterMode.values),
            field="cluster_mode",
            code="invalid-cluster-mode",
        )


def _check_reach(spec: SessionSpec, roles: Sequence[CheckedRole], group: ResourceGroup, agents: Sequence[str]) -> None:
    """Reject amounts that no agent of the group could ever hold. Kernels of a single-node session are summed up;
    kernels of a multi-node session are checked one by one."""
    together = spec.cluster_mode != ClusterMode.MULTI_NODE
    each = list(dict.fromkeys(role.slots for role in roles))
    for slots in [total_of(roles)] if together else each:
        check_reach(slots, group, agents, each if together else [slots])


def _check_environs(environs: Iterable[Mapping[str, str]]) -> None:
    size = 0
    for environ in environs:
        _check_environ(environ)
        size += sum(len(name) + len(value) for name, value in environ.items())
    if size > _MOST_CHARACTERS:
        text = "The variables have {size} characters, and may have {most} together. Put long values into files."
        raise UserError(text, size=size, most=_MOST_CHARACTERS, field="environ", code="invalid-variable")


def _check_environ(environ: Mapping[str, str]) -> None:
    for name, value in environ.items():
        check_variable_name(name)
        if len(value) > _LONGEST_VALUE or "\0" in value:
            raise UserError(
                "The value of {name} may have at most {longest_value} characters.",
                name=name,
                longest_value=_LONGEST_VALUE,
                field="environ",
                code="invalid-variable",
            )


def _project(user: User, spec: SessionSpec, actor: User) -> Project:
    projects = projects_open(user, actor)
    if spec.project:
        found = _named(projects, str(spec.project))
    else:
        found = min(projects, key=lambda project: project.created_at, default=None)
    if found is None:
        who = Message("You are") if actor.pk == user.pk else Message("{user} is", user=user.email)
        text = (
            Message("{who} not a member of project {project}.", who=who, project=spec.project)
            if spec.project
            else Message("{who} in no active project.", who=who)
        )
        raise UserError(text, field="project", code="no-project")
    return found


def _named(projects: Iterable[Project], name: str) -> Project | None:
    """Return the project with this id or name; None if there is none."""
    try:
        identity = UUID(name)
    except ValueError:
        return next((project for project in projects if project.name == name), None)
    return next((project for project in projects if project.pk == identity), None)


def _with_defaults(spec: SessionSpec, usual: SessionDefaults) -> SessionSpec:
    """Return the request with the group's defaults for missing values."""
    runs_program = KINDS[spec.session_type].runs_program
    return replace(
        spec,
        batch_timeout=spec.batch_timeout or (usual.batch_timeout if runs_program else None),
        environ={**usual.environ, **spec.environ},
    )


def _key_pair(user: User, spec: SessionSpec) -> KeyPair | None:
    if not spec.access_key:
        return key_pair_of(user)
    found: KeyPair | None = KeyPair.objects.visible_to(user).main_first().filter(pk=spec.access_key).first()
    if found is None:
        raise UserError("Active key pair not found.", field="access_key", code="no-key-pair")
    return found


def _check_type_in(group: ResourceGroup, spec: SessionSpec) -> None:
    allowed = list(group.allowed_session_types)
    if spec.session_type not in allowed:
        raise UserError(
            "Resource group {group} takes no {session_type} sessions; it takes: {allowed}.",
            group=group.name,
            session_type=spec.session_type,
            field="type",
            code="session-type-not-allowed",
            allowed=allowed,
        )


def _check_limits(total: Slots, limited: list[Limited]) -> None:
    """Reject amounts that exceed the limits of a policy even if no other session held any."""
    reason = beyond_limits(limited, total)
    if reason is not None:
        field = f"resources.{reason.details['slot']}"
        raise UserError(reason.message, field=field, code=reason.code, **reason.details)
