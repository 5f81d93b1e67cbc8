"""The template context of a session's panel, in a fixed number of queries."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from backendai.base.wire.capabilities import Capability
from backendai.domain.accounts.models import User
from backendai.domain.cluster.capabilities import capabilities_of, lacking_cluster_files, why_not
from backendai.domain.cluster.models import Agent
from backendai.domain.compute.models import ComputeSession, Kernel, KernelLog
from backendai.domain.compute.services.apps.of_session import app_logs_of
from backendai.domain.compute.services.launching.renaming import may_be_renamed
from backendai.domain.compute.services.launching.sharing import right_of, shares_of
from backendai.domain.compute.services.life.stopped_retention import kept_until
from backendai.domain.compute.services.life.stopping import stopping_now
from backendai.domain.compute.services.records.log_ends import last_lines, why_no_logs
from backendai.domain.compute.services.records.logs import earlier_logs
from backendai.domain.compute.services.requests.mounts import read_mounts
from backendai.domain.compute.status import PLACED, UNPLACED, ShareRight, Status
from backendai.domain.forecasts.ends import session_ends
from backendai.domain.serving.models import Endpoint
from backendai.domain.storage.models import Folder
from backendai.portal.web.session.actions import actions_of
from backendai.portal.web.session.facts import (
    asked_for,
    commands_of,
    ends_of,
    ends_soon,
    granted_to,
    memory_kill_of,
    uses_of,
    waited,
)
from backendai.portal.web.session.idle import idle_lines, rules_to_come
from backendai.portal.web.session.phases import start_of
from backendai.portal.web.session.reasons.advice import (
    drained_agents,
    silent_agents,
    try_text,
    wait_of,
    what_helps,
    what_to_change,
)
from backendai.portal.web.session.usage import usage_of

_MOST_NAMED = 20
_POINTS_TO_LOG = "task-failed"  # its advice is to read the log, which is needless beside its last lines


def detail_context(session: ComputeSession, user: User, *, in_drawer: bool, now: datetime) -> dict[str, Any]:
    """Return the context of the panel of a session that the user may see. ``in_drawer``: the panel lies over a list."""
    kernels = list(session.kernels.select_related("agent", "image"))
    facts, own = _facts(session, kernels, now), session.owner_id == user.pk
    main = next(iter(kernels), None)
    agent = main.agent if main else None
    about = ending_context(session, user)
    guest = about["guest"]
    kept_log = facts["kept_log"]
    actions = actions_of(session, agent, in_drawer=in_drawer, is_own=own, guest=guest, kept_log=kept_log)
    return (
        about
        | {"shares": [] if guest or session.is_terminal else shares_of(session)}
        | {"likely_end": session_ends([session], now).get(session.pk)}
        | _advice(session, kernels)
        | _neighbours(session, user)
        | {"endpoint": _endpoint(session, user)}
        | facts
        | {"idle_lines": idle_lines(session, now=now), "rules_to_come": rules_to_come(session)}
        | _mounts(session, kernels, user)
        | {"in_drawer": in_drawer, "kernels": kernels, "actions": actions}
        | {"memory_kill": None if session.is_terminal else memory_kill_of(kernels)}
        | _log_context(session, kernels, facts["kept_log"], now)
        | {
            "app_logs": [] if guest == ShareRight.VIEW else app_logs_of(session, main),
            "earlier_logs": earlier_logs(kernels),
        }
    )


def _endpoint(session: ComputeSession, user: User) -> Endpoint | None:
    """Return the visible endpoint of which the session is a replica, or None."""
    if not session.kind.is_served:
        return None
    found: Endpoint | None = Endpoint.objects.visible_to(user).live().filter(replicas__session=session).first()
    return found


def _mounts(session: ComputeSession, kernels: Sequence[Kernel], user: User) -> dict[str, Any]:
    """Return the mounted folders of the session.

    Also returns which of them the user can open, and which could not be mounted.
    """
    found = read_mounts([session.pk] if session.mount_count else [])
    agents = {kernel.agent_id for kernel in kernels if kernel.agent_id}
    left_out = [mount for agent_id in agents for mount in found.left_out(session.pk, agent_id)]
    told = [kernel for kernel in kernels if kernel.status == Status.RUNNING and kernel.status_message]
    mounts = found.of_session(session.pk)
    ids = [mount.folder_id for mount in mounts if mount.folder_id]
    return {
        "mounts": mounts,
        "folders_to_open": set(Folder.objects.visible_to(user).filter(pk__in=ids).values_list("pk", flat=True)),
        "mounts_left_out": [] if session.is_terminal else left_out,
        "kernels_without_folders": told if session.mount_count else [],
    }


def ending_context(session: ComputeSession, user: User) -> dict[str, Any]:
    """Return the context of every page about a session: its owner, and what the user may do with it. ``guest``: the
    right of somebody with whom it is shared, else None."""
    own = session.owner_id == user.pk
    return {
        "section": "sessions",
        "session": session,
        "is_own": own,
        "guest": right_of(user, session),
        "may_force": own or user.is_superadmin,
        "may_rename": own and may_be_renamed(session),
    }


def waiting_for(session: ComputeSession, user: User) -> list[ComputeSession]:
    """Return the pending sessions that depend on this one. They end if it fails."""
    return list(session.dependents.visible_to(user).pending().order_by("created_at")[:_MOST_NAMED])


def _advice(session: ComputeSession, kernels: Sequence[Kernel]) -> dict[str, Any]:
    return {
        "try_text": try_text(session),
        "change": what_to_change(session),
        "help": what_helps(session),
        "wait": wait_of(session),
        "forecast": getattr(session, "start_forecast", None) if session.status == Status.PENDING else None,
        "silent": silent_agents(session, kernels),
        "drains": drained_agents(kernels),
        "kept_until": kept_until(session),
        "stopping": stopping_now([session.pk]).get(session.pk) if session.status == Status.STOPPING else None,
    }


def _neighbours(session: ComputeSession, user: User) -> dict[str, Any]:
    after = list(session.depends_on.visible_to(user).order_by("created_at")[:_MOST_NAMED])
    before = list(session.dependents.visible_to(user).order_by("created_at")[:_MOST_NAMED])
    return {"after": after, "awaited": [each for each in after if not each.is_terminal], "before": before}


def _facts(session: ComputeSession, kernels: Sequence[Kernel], now: datetime) -> dict[str, Any]:
    ends = ends_of(session, kernels)
    granted = granted_to(session) if session.status in PLACED else None
    agents = {kernel.agent_id: kernel.agent for kernel in kernels if kernel.agent}
    is_placed = session.status not in UNPLACED
    return {
        "ends": ends,
        "ends_soon": ends_soon(ends, now=now),
        "granted": granted if granted is not None and granted != asked_for(kernels) else None,
        "total_slots": session.total,
        "uses": uses_of(kernels),
        "usage": usage_of(session, kernels, {}, now=now),
        "agents": list(agents.values()),
        "is_isolated": any(Capability.ISOLATED in capabilities_of(agent) for agent in agents.values()),
        "without_cluster_files": _without_cluster_files(session, list(agents.values())),
        "waited": waited(session),
        "role_commands": commands_of(session, kernels),
        "reserved_since": session.scheduled_at if is_placed else None,
        "kept_log": _kept_log(session) if session.is_terminal else None,
        "start": start_of(session, kernels, now=now),
    }


def _without_cluster_files(session: ComputeSession, agents: Sequence[Agent]) -> list[str]:
    """Return why kernels of the session get no host files and no SSH to each other: a sentence for each agent."""
    if session.cluster_size < 2 or session.is_terminal:
        return []
    lacking = [agent for agent in agents if lacking_cluster_files([capabilities_of(agent)])]
    return [why_not(agent, Capability.CLUSTER_FILES) for agent in lacking]


def _log_context(
    session: ComputeSession, kernels: Sequence[Kernel], kept_log: int | None, now: datetime
) -> dict[str, Any]:
    """Return the last lines of a failed program, or why an ended session has no log; one query for either."""
    if kept_log is None or not kernels:
        return {}
    lines = last_lines(session, kernels) if kept_log else ""
    advice = {"help": ""} if session.status_reason == _POINTS_TO_LOG and (lines or not kept_log) else {}
    if kept_log:
        return advice | {"last_lines": lines}
    kernels[0].session = session
    return advice | {"no_log": why_no_logs(kernels[:1], now)[kernels[0].pk]}


def _kept_log(session: ComputeSession) -> int:
    """Return the total size of the stored logs of the session's kernels, in bytes."""
    return sum(KernelLog.objects.filter(kernel__session=session).values_list("size", flat=True))
