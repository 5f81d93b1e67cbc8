"""Validates scheduling options of a launch: priority, start time, dependencies, designated agents."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from uuid import UUID

from django.db.models import Q

from backendai.base.core.errors import UserError
from backendai.base.core.messages import Message
from backendai.base.core.session_kinds import KINDS
from backendai.domain.accounts.models import User
from backendai.domain.accounts.policies.applicable import Limited, strictest
from backendai.domain.cluster.groups.session_defaults import HIGHEST_PRIORITY, LONGEST_RUN
from backendai.domain.cluster.models import Agent, ResourceGroup
from backendai.domain.compute.models import ComputeSession
from backendai.domain.compute.spec import SessionSpec
from backendai.domain.compute.status import LIVE, Placement, Result, When

USUAL_PRIORITY = 10
MOST_DEPENDENCIES = MOST_AGENTS = 100


def check_scheduling(spec: SessionSpec) -> None:
    """Reject an invalid time limit or placement, and options that only batch sessions have. Raises UserError."""
    kind = KINDS[spec.session_type]
    if spec.batch_timeout is not None and not kind.runs_program:
        raise UserError("Only batch sessions have a batch timeout.", field="batch_timeout", code="batch-only")
    if spec.batch_timeout is not None:
        check_length(spec.batch_timeout)
    if spec.retry_on_agent_loss and not kind.runs_again:
        raise UserError(
            "Only batch sessions can restart by themselves.", field="retry_on_agent_loss", code="batch-only"
        )
    if spec.may_be_stopped and not kind.stops_by_choice:
        text = Message("Only batch sessions need this choice: interactive ones can always be stopped.")
        raise UserError(text, field="may_be_stopped", code="batch-only")
    if spec.may_be_stopped and spec.cluster_size > 1:
        text = Message("Only a batch session of one kernel can be stopped. Clear this, or ask for one kernel.")
        raise UserError(text, field="may_be_stopped", code="single-kernel-only")
    if spec.placement and spec.placement not in Placement.values:
        raise UserError(
            "{placement} is not a placement: use {values}, or leave it empty.",
            placement=repr(spec.placement),
            values=" or ".join(Placement.values),
            field="placement",
            code="invalid-placement",
        )


def check_length(timeout: timedelta) -> timedelta:
    """Return the time limit unchanged if it is valid for a batch session. Raises UserError unless it is above 0 and at
    most ``LONGEST_RUN``."""
    if timedelta(0) < timeout <= LONGEST_RUN:
        return timeout
    text = (
        Message("Enter a time of at most {days} days.", days=LONGEST_RUN.days)
        if timeout > LONGEST_RUN
        else Message("Enter a time longer than 0.")
    )
    raise UserError(text, field="batch_timeout", code="invalid-batch-timeout", limit=LONGEST_RUN.total_seconds())


def check_kernels(spec: SessionSpec, limited: Sequence[Limited]) -> None:
    """Reject more kernels than the strictest policy allows in one session."""
    found = strictest(limited, "max_kernels_per_session")
    if found and spec.cluster_size > found[0]:
        limit, holder = found
        raise UserError(
            "{cluster_size} kernels requested, but one session of {holder} may have at most {limit}.",
            cluster_size=spec.cluster_size,
            holder=holder.label,
            field="cluster_size",
            code="too-many-kernels",
            wanted=spec.cluster_size,
            limit=limit,
            scope=holder.scope,
        )


def priority_of(spec: SessionSpec, limited: Sequence[Limited], usual: int | None = None) -> int:
    """Return the session's priority: the requested one, or the default. ``usual``: the group's default (None: the
    platform's). A default above the highest allowed priority is lowered."""
    found = strictest(limited, "max_priority")
    if spec.priority is None:
        usual = USUAL_PRIORITY if usual is None else usual
        return min(usual, found[0]) if found else usual
    check_priority(spec.priority, limited)
    return spec.priority


def check_priority(priority: int, limited: Sequence[Limited]) -> None:
    """Reject an invalid priority, or one above a policy's maximum."""
    if not 0 <= priority <= HIGHEST_PRIORITY:
        raise UserError(
            "Priority {priority} is not between 0 and {highest_priority}.",
            priority=priority,
            highest_priority=HIGHEST_PRIORITY,
            field="priority",
            code="invalid-priority",
            wanted=priority,
            limit=HIGHEST_PRIORITY,
        )
    found = strictest(limited, "max_priority")
    if found and priority > found[0]:
        limit, holder = found
        raise UserError(
            "Priority {priority} requested, but {holder} may have at most {limit}.",
            priority=priority,
            holder=holder.label,
            field="priority",
            code="priority-too-high",
            wanted=priority,
            limit=limit,
            scope=holder.scope,
        )


def dependencies_of(user: User, spec: SessionSpec, *, actor: User) -> list[UUID]:
    """Return the ids of sessions that must end first. A name means the live session with that name, else the newest.
    Raises UserError for sessions that the actor may not see, or that can no longer end as required."""
    when = spec.depends_when or When.SUCCESS
    if when not in When.values:
        values = ", ".join(When.values)
        text = Message("{given} is not known here: use {values}.", given=repr(when[:32]), values=values)
        raise UserError(text, field="depends_when", code="invalid-condition")
    if not spec.depends_on:
        return []
    if not KINDS[spec.session_type].has_dependencies:
        raise UserError("Only batch sessions wait for other sessions.", field="depends_on", code="batch-only")
    _check_number(len(spec.depends_on), MOST_DEPENDENCIES, Message("sessions to wait for"), "depends_on")
    if spec.name and spec.name in spec.depends_on:
        raise UserError("A session cannot wait for itself.", field="depends_on", code="depends-on-itself")
    wanted = Q(name__in=spec.depends_on) | Q(pk__in=[pk for text in spec.depends_on if (pk := _uuid(text))])
    rows = ComputeSession.objects.visible_to(actor).filter(wanted, owner=user).order_by("created_at", "pk")
    found: dict[str, UUID] = {}
    hopeless: dict[UUID, str] = {}
    columns = rows.values_list("pk", "name", "status", "session_type", "result")
    for pk, name, status, kind, result in sorted(columns, key=lambda row: row[2] in LIVE):
        found[name] = found[str(pk)] = pk
        if not KINDS[kind].has_result:
            hopeless[pk] = Message("{name} is interactive: only batch sessions end with success or failure.", name=name)
        elif status not in LIVE and when == When.SUCCESS and result != Result.SUCCESS:
            hopeless[pk] = Message("{name} has ended without success.", name=name)
        elif status not in LIVE and when == When.FAILURE and result == Result.SUCCESS:
            hopeless[pk] = Message("{name} has succeeded already.", name=name)
    named = list(
        dict.fromkeys(_found(text, found, Message("You have no session"), "depends_on") for text in spec.depends_on)
    )
    for pk in named:
        if pk in hopeless:
            raise UserError(hopeless[pk], field="depends_on", code="dependency-cannot-succeed")
    return named


def agents_of(spec: SessionSpec, group: ResourceGroup) -> list[str]:
    """Return the ids of the designated agents; empty: any agent of the group. Raises UserError for an agent outside the
    group."""
    if not spec.agents:
        return []
    _check_number(len(spec.agents), MOST_AGENTS, "agents", "agents")
    wanted = Q(name__in=spec.agents) | Q(pk__in=[pk for text in spec.agents if (pk := _uuid(text))])
    rows = Agent.objects.registered().filter(wanted, resource_group=group).values_list("pk", "name")
    found = {text: pk for pk, name in rows for text in (str(pk), name)}
    missing = Message("Resource group {group} has no agent", group=group.name)
    return list(dict.fromkeys(str(_found(text, found, missing, "agents")) for text in spec.agents))


def _check_number(number: int, limit: int, what: str, field: str) -> None:
    if number > limit:
        raise UserError(
            "{number} {what} named; at most {limit} are allowed.",
            number=number,
            what=what,
            field=field,
            code="too-many",
            limit=limit,
        )


def _uuid(text: str) -> UUID | None:
    try:
        return UUID(text)
    except ValueError:
        return None


def _found(text: str, found: dict[str, UUID], missing: str, field: str) -> UUID:
    pk = _uuid(text)
    hit = found.get(text) or (found.get(str(pk)) if pk else None)
    if hit is None:
        raise UserError(
            "{missing} {name}.",
            missing=missing,
            name=repr(text),
            field=field,
            code=f"unknown-{field.replace('_', '-')}",
            wanted=text,
        )
    return hit
