"""Advice about a session that waits or has ended: the reason, and the possible remedies."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime

from django.utils.dateparse import parse_datetime
from django.utils.translation import gettext_noop as _noop

from backendai.base.texts.messages import in_words
from backendai.base.texts.translation import gettext as _
from backendai.domain.cluster.models import Agent
from backendai.domain.compute.models import ComputeSession, Kernel
from backendai.domain.compute.status import STARTING, TERMINAL, Status

# What no wait ends, by the reason's code.
CHANGES = {
    "bigger-than-any-agent": _noop("Ask for less, or let an administrator add a bigger agent."),
    "bigger-than-all-agents": _noop("Ask for fewer or smaller kernels, or let an administrator add agents."),
    "too-many-kernels": _noop("Ask for fewer kernels, or let an administrator raise the agent's limit."),
    "no-agent-with-architecture": _noop("Choose an image of an architecture that the agents have."),
    "mixed-architectures": _noop("Choose images of one architecture."),
    "slot-limit": _noop("Ask for no more than the limit, or let an administrator raise it."),
    "too-many-sessions": _noop("The limit is 0 sessions: an administrator can raise it, or use another project."),
    "slot-not-offered": _noop("Choose a resource group that has it, or do without it."),
    "dependency-failed": _noop("Let the other session succeed first, then launch this one again."),
    "session-type-not-allowed": _noop("Choose another resource group, or the other type of session."),
    "designated-agent-unknown": _noop("Name agents of this resource group, or none: then any of them will do."),
    "invalid-amount": _noop("Choose an amount that is a multiple of the device share."),
    "scheduler-error": _noop("Give the error number to an administrator. Other sessions are not affected."),
}
# What shortens a wait, or ends one that nobody but an administrator can end.
HELPS = {
    "image-build-failed": _noop(
        "The platform tries the build again, and a superadmin can retry it on the image's page. "
        "The session then starts."
    ),
    "slot-limit": _noop(
        "The session starts when others that count against the limit end: terminate one of yours, or request less."
    ),
    "too-many-sessions": _noop(
        "The session starts when one that counts against the limit ends: terminate one of yours."
    ),
    "fragmented": _noop(
        "The session starts when whole devices become free; a share that one device has free can start sooner."
    ),
    "agent-fault": _noop("Tell an administrator: the agents page says how to repair it. Then the session starts."),
    "disk-low": _noop("Choose an image that the agents have, or let an administrator free disk space on them."),
    "agents-without-cluster-network": _noop(
        "Choose a cluster on one agent, or let an administrator run agents as root, with iproute2."
    ),
    "image-not-on-agent": _noop("Choose another image, or let an administrator pull this one to the agents."),
    "agents-without-containers": _noop("Choose another image or resource group: no agent here runs containers."),
    "agent-draining": _noop("Choose another resource group, or ask an administrator when the agent is back."),
    "no-agent-alive": _noop("Tell an administrator: the agents page says since when the agent is silent."),
    "no-agent-schedulable": _noop("Choose another resource group, or ask an administrator to resume the agent."),
    "wrong-group-rules": _noop(
        "This will not resolve by itself: contact an administrator or choose another resource group."
    ),
    "scheduler-error": _noop("Waiting may not help: give the error number to an administrator."),
    "beyond-this-pass": _noop(
        "The session is queued and will be considered once enough earlier sessions have started."
    ),
}
# What somebody can do once it is over.
AFTERWARDS = {
    "dependency-failed": _noop("See why the other session failed; after it has succeeded, launch this one again."),
    "gave-up-scheduling": _noop("Launch it again with less or in another resource group, or when fewer sessions run."),
    "pending-timeout": _noop("Launch it again with less or in another resource group, or when fewer sessions run."),
    "registry-unreachable": _noop(
        "An administrator can correct the image's reference or pull the image to the agents."
    ),
    "registry-denied": _noop("An administrator can set the account of its registry, or pull the image to the agents."),
    "image-not-found": _noop("An administrator can correct the image's reference or pull the image to the agents."),
    "accelerator-runtime-missing": _noop("Tell an administrator: the agent lacks NVIDIA's container toolkit."),
    "accelerator-refused": _noop("Tell an administrator: NVIDIA's runtime on the agent refused the GPU."),
    "cluster-network-failed": _noop(
        "Launch it again, or on one agent. If it fails again, tell an administrator: the agents do not "
        "reach each other, or the subnets are in use."
    ),
    "wider-than-any-node": _noop(
        "Ask for less than the largest machine of the cluster has, or choose another resource group."
    ),
    "unschedulable": _noop("Launch it again later or with less: other work in the cluster may hold the machines."),
    "quota-exceeded": _noop(
        "Terminate another session of this agent, or let an administrator raise the quota of the namespace."
    ),
    "volume-not-mounted": _noop("Launch it again. If it fails again, tell an administrator what the cluster says."),
    "pod-evicted": _noop("The message says what ran out: ask for more of it, or write less to the home folder."),
    "shell-missing": _noop("Choose another image, or build one from it that has a shell at /bin/sh."),
    "container-killed": _noop("Launch it again. Ask the administrators who stopped or removed the container."),
    "pod-deleted": _noop("Launch it again. Ask the administrators of the cluster who deleted the container."),
    "folder-revoked": _noop("Ask those who manage the folder to share it again, or start the session without it."),
    "engine-unreachable": _noop(
        "Launch it again. Tell an administrator: the container engine of the agent does not answer."
    ),
    "device-lost": _noop("Launch it again: the failed device is no longer allocated."),
    "task-failed": _noop("The log of the main kernel says why the program failed."),
    "out-of-memory": _noop("Launch it again with more memory, or let the program use less."),
    "scratch-full": _noop("Keep large files in folders, or let an administrator raise the limit of the home folder."),
    "layer-full": _noop("Write large files to the home folder or to folders, not to the system directories."),
    "not-ready": _noop("The log says what the program did instead. Check its port, or allow it more time."),
    "pull-failed": _noop("Launch it again. If it fails again, tell an administrator what the message says."),
    "pull-broken-off": _noop("Launch it again: the agent continues the pull."),
    "pull-timeout": _noop("Launch it again, or let an administrator pull the image to the agents first."),
    "create-timeout": _noop("Launch it again. If it fails again, tell an administrator: the agent starts too slowly."),
    "start-timeout": _noop("Launch it again. If it fails again, tell an administrator: the agent starts too slowly."),
    "failed-to-start": _noop(
        "The message says what the agent could not do. Correct the request, or tell an administrator."
    ),
    "sibling-failed": _noop("See the other kernels of the session: one of them says why it did not start."),
    "scratch-failed": _noop("Launch it again. Tell an administrator: the agent cannot create home folders."),
    "home-missing": _noop("Resume it again. Tell an administrator if the folder of the stopped session is not there."),
    "home-not-stored": _noop("The history says why. If it was stopped before, resume it with the files of that time."),
    "home-too-large": _noop("Open the folder of the stopped session under Folders: it has all files as an archive."),
    "home-broken": _noop("Open the folder of the stopped session under Folders, and see what the archive still has."),
    "storage-missing": _noop("Tell an administrator: the agent needs the storage host of the folder."),
    "storage-silent": _noop("Launch it again when the storage host answers, or without the folder."),
    "folder-missing": _noop("Launch it again without the folder, and tell an administrator: its files are missing."),
    "mount-refused": _noop("The message names the folder. Launch it again without it, or in another resource group."),
    "network-pool-exhausted": _noop("Launch it again when other sessions of the agent have ended."),
    "no-network": _noop("Launch it again. Tell an administrator: networks of the agent were removed."),
    "name-taken": _noop("Launch it again. Tell an administrator: two platforms may share the agent."),
    "wrong-deployment": _noop("Tell an administrator: the agent has to join this platform again."),
    "container-missing": _noop("Launch it again. Tell an administrator: the kernel was deleted on the agent."),
    "backend-error": _noop("Launch it again. If it fails again, tell an administrator what the message says."),
    "agent-terminated": _noop("Launch it again: it will run on another agent. Files outside mounted folders are lost."),
    "agent-lost": _noop("Launch it again: it will run on another agent. Files outside mounted folders are lost."),
    "node-lost": _noop("Launch it again: it will run on another machine. Files outside mounted folders are lost."),
    "task-timeout": _noop(
        "Launch it again with a longer batch timeout, or let the program continue from where it saved."
    ),
    "session-lifetime": _noop("Launch it again, or let an administrator raise the maximum lifetime of the policy."),
}
_WAITS = {
    "image-building": _noop("Waiting for its image"),
    "image-build-failed": _noop("Waiting for its image"),
    "agents-without-cluster-network": _noop("Waiting for agents that can join a network"),
    "image-not-on-agent": _noop("Waiting for its image"),
    "agents-without-containers": _noop("Waiting for an agent"),
    "agent-draining": _noop("Waiting for an agent"),
    "disk-low": _noop("Waiting for disk space"),
    "start-time-not-reached": _noop("Waiting for its start time"),
    "dependency-not-finished": _noop("Waiting for another session"),
    "too-many-sessions": _noop("Waiting for a limit"),
    "slot-limit": _noop("Waiting for a limit"),
    "behind-in-queue": _noop("Waiting for its turn"),
    "beyond-this-pass": _noop("Waiting for its turn"),
    "agent-fault": _noop("Waiting for an administrator"),
    "no-agent": _noop("Waiting for an agent"),
    "no-agent-alive": _noop("Waiting for an agent"),
    "no-agent-schedulable": _noop("Waiting for an agent"),
    "wrong-group-rules": _noop("Waiting for an administrator"),
    "scheduler-error": _noop("Waiting for an administrator"),
}
_NOT_YET_WAITING = frozenset({"start-time-not-reached", "dependency-not-finished"})  # for anything that takes its time
_ANYTHING = _noop("Launch a session with other resources, another image or another resource group.")


@dataclass(frozen=True, slots=True)
class SilentAgent:
    """An unreachable agent of the session: the time of its last contact, and the time when its sessions end."""

    name: str
    since: datetime
    until: datetime


@dataclass(frozen=True, slots=True)
class Wait:
    """The wait of a pending session: reason, place in the queue, start and expected end.

    ``why`` is empty if the session waits for its own start time; the start is None before that time. Also has the time
    at which the pending session would be cancelled.
    """

    title: str
    why: str
    position: int | None
    since: datetime | None
    until: datetime | None
    cancelled_at: datetime | None


def wait_of(session: ComputeSession) -> Wait | None:
    """Return the wait of a pending session; None for others."""
    if session.status != Status.PENDING:
        return None
    queued_at = session.changed_at if session.retries else session.created_at
    begins_at = max(queued_at, session.starts_at or queued_at)
    longest = session.resource_group.pending_timeout
    until = session.status_data.get("until")
    return Wait(
        title=_(_WAITS.get(session.status_reason, _noop("Waiting for free resources"))),
        why=_why(session),
        position=session.queue_position,
        since=None if session.status_reason in _NOT_YET_WAITING else begins_at,
        until=parse_datetime(until) if isinstance(until, str) else None,
        cancelled_at=begins_at + longest if longest and session.status_reason not in _NOT_YET_WAITING else None,
    )


def _why(session: ComputeSession) -> str:
    if session.status_reason == "start-time-not-reached" and session.starts_at:
        return ""
    return in_words(session.reason_text) or _("The scheduler considers it within a few seconds.")


def what_to_change(session: ComputeSession) -> str:
    """Return the change with which a session that can never start would start; empty if waiting is enough."""
    if session.status != Status.PENDING or not session.status_data.get("never"):
        return ""
    return _(CHANGES.get(session.status_reason, _ANYTHING))


def what_helps(session: ComputeSession) -> str:
    """Return what shortens the wait of a session, or helps after its end; empty if nothing does."""
    if session.status in TERMINAL:
        return _said(AFTERWARDS, session)
    if session.status != Status.PENDING or session.status_data.get("never"):
        return ""
    return _said(HELPS, session)


def _said(texts: Mapping[str, str], session: ComputeSession) -> str:
    text = texts.get(session.status_reason)
    return _(text) if text else ""


def try_text(session: ComputeSession) -> str:
    """Return the number of this start attempt after a failed one: ``attempt 2 of 4``. Empty for the first attempt."""
    if not session.retries or session.status not in STARTING | {Status.PENDING}:
        return ""
    numbers = {"number": session.retries + 1, "most": session.resource_group.max_retries + 1}
    return _("attempt %(number)s of %(most)s") % numbers


def silent_agents(session: ComputeSession, kernels: Iterable[Kernel]) -> list[SilentAgent]:
    """Return the unreachable agents that have live kernels of the session."""
    agents = {kernel.agent_id: kernel.agent for kernel in kernels if kernel.agent and kernel.status not in TERMINAL}
    grace = session.resource_group.agent_lost_grace
    return [
        SilentAgent(agent.name, agent.last_seen_at or agent.lost_at, agent.lost_at + grace)
        for agent in agents.values()
        if agent.status == Agent.Status.LOST and agent.lost_at
    ]


def drained_agents(kernels: Iterable[Kernel]) -> list[Agent]:
    """Return the draining agents that run live kernels among these."""
    agents = {kernel.agent_id: kernel.agent for kernel in kernels if kernel.agent and kernel.status not in TERMINAL}
    return [agent for agent in agents.values() if agent.is_drained]
