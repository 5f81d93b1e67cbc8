"""Validates the roles of a launch request: kernels with their own image, amounts, variables, command and folders; the
order in which they start, their readiness checks, and the role that ends the session."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from graphlib import CycleError, TopologicalSorter
from typing import Any

from django.db.models import QuerySet

from backendai.base.core.errors import UserError
from backendai.base.core.messages import Message
from backendai.base.core.nearest import nearest_to
from backendai.base.core.session_kinds import KINDS
from backendai.base.core.slots import Slots
from backendai.domain.accounts.models import Project, User
from backendai.domain.catalog.models import Image, ResourcePreset
from backendai.domain.compute.services.requests.amounts import check_bounds, shm_of, slots_of
from backendai.domain.compute.services.requests.mounts import ResolvedMount, resolve_mounts
from backendai.domain.compute.spec import RoleSpec, SessionSpec
from backendai.domain.compute.status import OnFailure

SUB = "sub"
MOST_ROLES = 16
# A role ends with a letter, as role and kernel number together are the host name.
_NAME = re.compile(r"[a-z]([a-z0-9-]{0,13}[a-z])?", re.ASCII)


def _named(user: Any, domain_id: Any, name: Any) -> QuerySet[Any, Any]:
    return Image.objects.usable_by(user).usable_in(domain_id).named(name)[:1]


@dataclass(frozen=True, slots=True)
class CheckedRole:
    """The validated values of a role's kernels, with names resolved. ``mounts``: folders that only this role mounts."""

    name: str
    count: int
    image: Image
    slots: Slots
    shm_bytes: int
    environ: Mapping[str, str]
    startup_command: str
    mounts: Sequence[ResolvedMount] = ()
    on_failure: OnFailure = OnFailure.END
    after: Sequence[str] = ()
    ready: Mapping[str, Any] = field(default_factory=dict)


def roles_of(spec: SessionSpec) -> dict[str, RoleSpec]:
    """Return the kernel roles of the request by name, the main one first; a missing main role is added.

    Without roles: ``main``, and ``sub`` for the further kernels. If the command runs in the main kernel only, roles
    without a command wait, and main starts after the others unless the roles have an order.
    """
    roles = {SUB: RoleSpec(count=spec.cluster_size - 1)} if spec.cluster_size > 1 else {}
    roles = {MAIN: spec.roles.get(MAIN, RoleSpec()), **(spec.roles or roles)}
    return _with_command_in_main(roles) if spec.command_in == MAIN else roles


def _with_command_in_main(roles: Mapping[str, RoleSpec]) -> dict[str, RoleSpec]:
    """Return the roles, with a command that waits for each role that has no command. The main kernel starts after all
    others, unless the roles have an order."""
    found = {name: replace(role, startup_command=role.startup_command or WAIT) for name, role in roles.items()}
    is_ordered = any(role.after for role in roles.values())
    after = roles[MAIN].after if is_ordered else tuple(name for name in roles if name != MAIN)
    return {**found, MAIN: replace(roles[MAIN], after=after)}


def with_size(spec: SessionSpec) -> SessionSpec:
    """Return the request with its cluster size, computed from the roles. Raises UserError for impossible roles."""
    if not spec.roles:
        check_order(spec, roles_of(spec))
        return spec
    if len(spec.roles) > MOST_ROLES:
        raise UserError("A session has at most {limit} roles.", field="roles", code="too-many-roles", limit=MOST_ROLES)
    for name, role in spec.roles.items():
        if not _NAME.fullmatch(name):
            raise UserError(
                "{name} is not a role: use up to 15 lower-case letters, digits and dashes, a letter last.",
                name=repr(name[:32]),
                field=f"roles.{name[:64]}",
                code="invalid-role",
            )
        if role.count < 1 or (name == MAIN and role.count != 1):
            text = Message("Role {name} needs at least 1 kernel.", name=name)
            text = Message("There is one main kernel.") if name == MAIN else text
            raise UserError(text, field=f"roles.{name}.count", code="invalid-cluster-size")
    check_order(spec, roles_of(spec))
    size = sum(role.count for role in roles_of(spec).values())
    if spec.cluster_size not in (1, size):
        raise UserError(
            "The roles have {size} kernels, but cluster_size is {given}: leave cluster_size out.",
            size=size,
            given=spec.cluster_size,
            field="cluster_size",
            code="invalid-cluster-size",
        )
    return replace(spec, cluster_size=size)


def check_roles(
    user: User, spec: SessionSpec, project: Project, preset: ResourcePreset | None, usual_shm: str
) -> list[CheckedRole]:
    """Return the validated roles, the main one first. Raises UserError at the role's field."""
    checked: list[CheckedRole] = []
    images: dict[str, Image] = {}
    for name, role in roles_of(spec).items():
        with _fields_of(name, role):
            own = _as_spec(spec, role)
            image = images.get(own.image) or image_of(user, own, project)
            images[own.image] = image
            slots = slots_of(own, None if role.resources else preset, image)
            check_bounds(slots, image)
            _check_features(own, image)
            shm = shm_of(own, None if role.resources else preset, slots, image.preferred_shm or usual_shm)
            mounts = own_mounts(user, project, spec, role)
        policy, ready = _policy_of(name, role), ready_of(role.ready, f"roles.{name}.ready")
        program, after = role.startup_command, tuple(role.after)
        checked.append(
            CheckedRole(name, role.count, image, slots, shm, role.environ, program, mounts, policy, after, ready)
        )
    return checked


def total_of(roles: Sequence[CheckedRole]) -> Slots:
    """Return the sum of the amounts of all kernels."""
    return sum((role.slots * role.count for role in roles), Slots())


def own_mounts(user: User, project: Project, spec: SessionSpec, role: RoleSpec) -> list[ResolvedMount]:
    """Return the folders that only this role mounts."""
    if not role.mounts:
        return []
    found = resolve_mounts(user, project, replace(spec, mounts=[*spec.mounts, *role.mounts]))
    return found[len(spec.mounts) : len(spec.mounts) + len(role.mounts)]


def image_of(user: User, spec: SessionSpec, project: Project) -> Image:
    """Return the image with this name, alias or reference. Raises UserError if there is none that user and domain may
    use."""
    found: Image | None = next(iter(_named(user, project.domain_id, spec.image)), None)
    if found is None:
        images = Image.objects.usable_by(user).usable_in(project.domain_id)
        known = list(images.values_list("name", flat=True)[:10])
        raise UserError(
            "Image {image} not found for project {project}; available: {known}.",
            image=repr(spec.image),
            project=project.name,
            known=known or Message("none"),
            field="image",
            code="unknown-image",
        )
    return found


def _check_features(spec: SessionSpec, image: Image) -> None:
    if KINDS[spec.session_type].runs_program and not image.runs_programs:
        raise UserError(
            "{image} runs no batch sessions, as its label ai.backend.features says: choose another image.",
            image=image.name,
            field="image",
            code="image-without-batch",
        )


def _policy_of(name: str, role: RoleSpec) -> OnFailure:
    field = f"roles.{name}.on_failure"
    if role.on_failure and role.on_failure not in OnFailure.values:
        raise UserError(
            "{value} is not what a role can do on failure: use {values}.",
            value=repr(role.on_failure[:32]),
            values=" or ".join(OnFailure.values),
            field=field,
            code="invalid-on-failure",
        )
    if name == MAIN and role.on_failure == OnFailure.TOLERATE:
        raise UserError("A session does not go on without its main kernel.", field=field, code="invalid-on-failure")
    return OnFailure(role.on_failure or OnFailure.END)


def _as_spec(spec: SessionSpec, role: RoleSpec) -> SessionSpec:
    return replace(
        spec, image=role.image or spec.image, resources=role.resources or spec.resources, shm=role.shm or spec.shm
    )


@contextmanager
def _fields_of(name: str, role: RoleSpec) -> Iterator[None]:
    """Prefix the field of a UserError with the role, if the role itself sets the value."""
    values: dict[str, Any] = {field: getattr(role, field) for field in ("image", "resources", "shm", "mounts")}
    try:
        yield
    except UserError as error:
        if error.field and values.get(error.field.partition(".")[0]):
            error.field = f"roles.{name}.{error.field}"
        raise


MAIN, ALL = "main", "all"
WAIT = "exec sleep infinity"  # of kernels in which the main kernel's program starts others, as mpirun does
USUAL_WITHIN, LONGEST_WITHIN = 60, 100  # an agent has 120 s for a start, unless its group sets another limit
_LARGEST_PORT = 65535


def check_order(spec: SessionSpec, roles: Mapping[str, RoleSpec]) -> None:
    """Reject start orders with unknown roles or a cycle, invalid ``done_when`` and ``command_in``. Raises UserError."""
    for name, role in roles.items():
        for other in role.after:
            if other not in roles or other == name:
                raise _unknown(other, set(roles) - {name}, f"roles.{name}.after")
    try:
        TopologicalSorter({name: set(role.after) for name, role in roles.items()}).prepare()
    except CycleError as error:
        circle = error.args[1]
        text = Message("The roles wait for each other: {names}.", names=" → ".join(circle))
        raise UserError(text, field=f"roles.{circle[0]}.after", code="circular-roles") from None
    _check_end(spec, roles)
    _check_command(spec, roles)


def ready_of(value: Mapping[str, Any], field: str) -> dict[str, Any]:
    """Return the readiness check as a kernel stores it: port and seconds. Empty without a check. Raises UserError with
    the field."""
    if not value:
        return {}
    for key in value:
        if key not in ("tcp", "within"):
            text = Message("Readiness has no key {key}: use {near}.", key=repr(str(key)[:64]), near="tcp, within")
            raise UserError(text, field=f"{field}.{str(key)[:64]}", code="unknown-field")
    port = _whole(value.get("tcp"), 1, _LARGEST_PORT, f"{field}.tcp")
    return {"tcp": port, "within": _whole(value.get("within", USUAL_WITHIN), 1, LONGEST_WITHIN, f"{field}.within")}


def _check_end(spec: SessionSpec, roles: Mapping[str, RoleSpec]) -> None:
    if not spec.done_when:
        return
    if not KINDS[spec.session_type].has_result:
        text = Message("Only batch sessions end with a role: leave {field} empty.", field="done_when")
        raise UserError(text, field="done_when", code="batch-only")
    if spec.done_when not in (MAIN, ALL, *roles):
        raise _unknown(spec.done_when, {MAIN, ALL, *roles}, "done_when")


def _check_command(spec: SessionSpec, roles: Mapping[str, RoleSpec]) -> None:
    if spec.command_in not in ("", MAIN):
        raise UserError(
            "{value} is not where a command runs: use main, or leave it empty for every kernel.",
            value=repr(spec.command_in[:32]),
            field="command_in",
            code="invalid-command-in",
        )
    if spec.command_in and not KINDS[spec.session_type].runs_program:
        text = Message("Only batch sessions run a command: leave {field} empty.", field="command_in")
        raise UserError(text, field="command_in", code="batch-only")
    waiting = [name for name, role in roles.items() if role.startup_command == WAIT]
    if spec.command_in and waiting and spec.done_when in (ALL, *waiting):
        raise UserError(
            "The kernels of role {role} only wait for the main kernel and never end: leave done_when empty.",
            role=waiting[0],
            field="done_when",
            code="never-done",
        )


def _unknown(name: str, known: Collection[str], field: str) -> UserError:
    near = nearest_to(name, known) or ", ".join(sorted(known)) or Message("none")
    text = Message("The session has no role {name} to wait for: use {near}.", name=repr(name[:32]), near=near)
    return UserError(text, field=field, code="unknown-role")


def _whole(value: Any, least: int, most: int, field: str) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
        text = Message("Write a number from {least} to {most}.", least=least, most=most)
        raise UserError(text, field=field, code="invalid-number")
    return value
