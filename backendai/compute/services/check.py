"""Is this launch request possible? One validator for the form, REST and the review."""

from __future__ import annotations

from dataclasses import dataclass
from uuid import UUID

from django.db.models import F, Q
from django.utils import timezone

from backendai.accounts.models import Project, User
from backendai.catalog.models import Image, ResourcePreset
from backendai.cluster.models import Agent, ResourceGroup
from backendai.compute.spec import SessionSpec
from backendai.compute.status import SessionType
from backendai.core.errors import UserError
from backendai.core.names import check_session_name, check_variable_name
from backendai.core.slots import MILLI, Slots, format_amount, format_size, parse_amount, parse_size

LARGEST_CLUSTER = 16
_DEFAULTS = {"cpu": 1 * MILLI, "mem": 1024 * 2**20 * MILLI}
_SMALLEST = {"cpu": MILLI // 10, "mem": 16 * 2**20 * MILLI}
_LONGEST_VALUE = 8192


@dataclass(frozen=True, slots=True)
class Checked:
    """A request that can be written: every name resolved, every amount exact."""

    project: Project
    group: ResourceGroup
    image: Image
    slots: Slots
    shm_bytes: int


def check_spec(user: User, spec: SessionSpec) -> Checked:
    """Return the request with its names resolved; raises a UserError that names the field, the number, the limit."""
    if spec.name:
        check_session_name(spec.name)
    _check_type(spec)
    _check_environ(spec)
    if not 1 <= spec.cluster_size <= LARGEST_CLUSTER:
        raise UserError(f"Choose 1 to {LARGEST_CLUSTER} kernels.", field="cluster_size", code="invalid-cluster-size")
    project = _project(user, spec)
    group = _group(project, spec)
    image = _image(user, spec)
    slots = _slots(user, spec, group, image)
    _check_minimum(slots, image)
    shm_bytes = _shm(spec, slots)
    _check_reach(slots, group, spec.cluster_size)
    return Checked(project, group, image, slots, shm_bytes)


def _check_type(spec: SessionSpec) -> None:
    if spec.session_type not in SessionType.values:
        raise UserError(
            f"{spec.session_type!r} is not a session type: use {' or '.join(SessionType.values)}.",
            field="type",
            code="invalid-type",
        )
    batch = spec.session_type == SessionType.BATCH
    if batch and not spec.startup_command.strip():
        raise UserError("A batch session needs a command to run.", field="startup_command", code="missing-command")
    if not batch and spec.startup_command.strip():
        raise UserError("Only batch sessions run a command.", field="startup_command", code="batch-only")
    if not batch and spec.starts_at:
        raise UserError("Only batch sessions have a start time.", field="starts_at", code="batch-only")
    if spec.starts_at and spec.starts_at <= timezone.now():
        raise UserError("The start time is in the past.", field="starts_at", code="invalid-date")
    if len(spec.startup_command) > 2**16:
        raise UserError("The command is longer than 64 KiB.", field="startup_command", code="too-long")


def _check_environ(spec: SessionSpec) -> None:
    for name, value in spec.environ.items():
        check_variable_name(name)
        if len(value) > _LONGEST_VALUE or "\0" in value:
            raise UserError(
                f"The value of {name} may have at most {_LONGEST_VALUE} characters.",
                field="environ",
                code="invalid-variable",
            )


def _project(user: User, spec: SessionSpec) -> Project:
    projects = Project.objects.usable_by(user)
    if spec.project:
        try:
            found: Project | None = projects.filter(pk=UUID(str(spec.project))).first()
        except ValueError:
            found = projects.filter(name=str(spec.project)).first()
    else:
        found = projects.order_by("created_at").first()
    if found is None:
        text = f"You are not a member of project {spec.project}." if spec.project else "You are in no active project."
        raise UserError(text, field="project", code="no-project")
    return found


def _group(project: Project, spec: SessionSpec) -> ResourceGroup:
    groups: list[ResourceGroup] = list(ResourceGroup.objects.usable_for(project).order_by("created_at"))
    names = ", ".join(group.name for group in groups) or "none"
    if not spec.resource_group and groups:
        return groups[0]
    for group in groups:
        if group.name == spec.resource_group:
            return group
    raise UserError(
        f"Resource group {spec.resource_group!r} is not open to project {project.name}; open to it: {names}.",
        field="resource_group",
        code="resource-group-not-allowed",
    )


def _image(user: User, spec: SessionSpec) -> Image:
    images = Image.objects.usable_by(user)
    found: Image | None = images.filter(name=spec.image).first() or images.filter(reference=spec.image).first()
    if found is None:
        known = list(images.values_list("name", flat=True)[:10])
        raise UserError(
            f"There is no image {spec.image!r}; there are: {', '.join(known) or 'none'}.",
            field="image",
            code="unknown-image",
        )
    return found


def _slots(user: User, spec: SessionSpec, group: ResourceGroup, image: Image) -> Slots:
    base: dict[str, int] = {name: max(amount, image.minimum_slots[name]) for name, amount in _DEFAULTS.items()}
    if spec.preset:
        base |= dict(_preset(user, spec.preset, group).amounts)
    # Not Slots.parse: a zero that somebody typed must stand against the default.
    asked = {name: parse_amount(name, value, field=f"resources.{name}") for name, value in spec.resources.items()}
    return Slots(base | asked)


def _preset(user: User, name: str, group: ResourceGroup) -> ResourcePreset:
    """Return the group's own preset of this name, or else the one for all groups."""
    presets = ResourcePreset.objects.visible_to(user).filter(name=name)
    own_or_all = presets.filter(Q(resource_group=group) | Q(resource_group=None))
    found: ResourcePreset | None = own_or_all.order_by(F("resource_group").asc(nulls_last=True)).first()
    if found is None:
        raise UserError(f"There is no preset {name!r} for {group.name}.", field="preset", code="unknown-preset")
    return found


def _check_minimum(slots: Slots, image: Image) -> None:
    for name in _SMALLEST.keys() | set(image.minimum_slots):
        least = max(_SMALLEST.get(name, 0), image.minimum_slots[name])
        if slots[name] < least:
            wanted, limit = format_amount(name, slots[name]), format_amount(name, least)
            raise UserError(
                f"{name}: {wanted} asked, but {image.name} needs at least {limit}.",
                field=f"resources.{name}",
                code="below-minimum",
                wanted=wanted,
                limit=limit,
            )


def _shm(spec: SessionSpec, slots: Slots) -> int:
    memory = slots["mem"] // MILLI
    if not spec.shm:
        return 2**30 if memory >= 4 * 2**30 else min(64 * 2**20, memory // 2)
    shm = parse_size(spec.shm, field="shm")
    if shm >= memory:
        raise UserError(
            f"Shared memory is part of the memory: {format_size(shm)} asked, memory is {format_size(memory)}.",
            field="shm",
            code="shm-too-large",
        )
    return shm


def _check_reach(slots: Slots, group: ResourceGroup, cluster_size: int) -> None:
    """Refuse what no registered agent could ever give, also a lost one; with no agent at all the session may wait."""
    agents = [agent.slots for agent in Agent.objects.registered().filter(resource_group=group)]
    total = slots * cluster_size
    if not agents or any(total.fits(capacity) for capacity in agents):
        return
    for name, wanted in total.items():
        most = max(capacity[name] for capacity in agents)
        if wanted > most:
            raise UserError(
                f"{name}: {format_amount(name, wanted)} asked, but no agent of {group.name} has more than "
                f"{format_amount(name, most)}.",
                field=f"resources.{name}",
                code="bigger-than-any-agent",
                wanted=format_amount(name, wanted),
                limit=format_amount(name, most),
            )
    raise UserError(
        f"No single agent of {group.name} has all of {total.describe()}.",
        field="resources",
        code="bigger-than-any-agent",
    )
