"""Validates the start order of a session's roles, their readiness checks, and the role that ends the session."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from graphlib import CycleError, TopologicalSorter
from typing import Any

from backendai.base.core.errors import UserError
from backendai.base.core.messages import Message
from backendai.base.core.nearest import nearest_to
from backendai.base.core.session_kinds import KINDS
from backendai.domain.compute.spec import RoleSpec, SessionSpec

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
