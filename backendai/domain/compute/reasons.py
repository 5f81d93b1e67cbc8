"""The reasons why sessions and kernels end: one table of codes with kind, final status, whether a retry may help, and
text."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from backendai.base.core.messages import Message
from backendai.domain.compute.status import Outcome, Status
from backendai.scheduler.idle_kinds import IDLE_KINDS

GAVE_WAY = "gave-way"  # stopped for a session of higher priority
STOPPED = "stopped"  # its homes are stored, and it can be resumed
HOME_NOT_STORED = "home-not-stored"  # its program was ended to stop it, in vain
STOPPED_TOO_LONG = "stopped-too-long"
BY_SCHEDULE = "stopped-by-schedule"
FINISHED = "task-finished"  # the command of a batch session ended with exit code 0


class ReasonKind(StrEnum):
    """The cause of an end: a person, a program or a part of the platform."""

    REQUEST = "request"  # a person requested the end
    PROGRAM = "program"  # the session's program
    IDLE = "idle"  # an idle checker, after a warning
    LIMIT = "limit"  # a time limit
    QUEUE = "queue"  # the session never started
    IMAGE = "image"  # the image could not be used
    AGENT_LOST = "agent-lost"  # the agent was lost, retired or drained
    FAULT = "fault"  # a fault of the platform or of an agent


@dataclass(frozen=True, slots=True)
class Reason:
    """One reason. ``fails``: the session did not do what its owner wanted, and no one requested the end.
    ``is_retriable``: another start may succeed on another agent."""

    kind: ReasonKind
    text: str
    final: Status = Status.TERMINATED
    is_retriable: bool = False
    fails: bool = False

    @property
    def outcome(self) -> Outcome:
        """The result that the scheduling history records for this reason."""
        return Outcome.FAILURE if self.fails else Outcome.SUCCESS


def _requested(text: str) -> Reason:
    return Reason(ReasonKind.REQUEST, text)


def _failed_program(text: str) -> Reason:
    return Reason(ReasonKind.PROGRAM, text, fails=True)


def _idle(text: str) -> Reason:
    return Reason(ReasonKind.IDLE, text)


def _limit(text: str) -> Reason:
    return Reason(ReasonKind.LIMIT, text)


def _not_started(text: str) -> Reason:
    return Reason(ReasonKind.QUEUE, text, Status.CANCELLED)


def _image(text: str, *, is_retriable: bool = False) -> Reason:
    return Reason(ReasonKind.IMAGE, text, Status.ERROR, is_retriable, fails=True)


def _lost(text: str, final: Status = Status.ERROR) -> Reason:
    return Reason(ReasonKind.AGENT_LOST, text, final, is_retriable=True, fails=final == Status.ERROR)


def _fault(text: str, *, is_retriable: bool = True) -> Reason:
    return Reason(ReasonKind.FAULT, text, Status.ERROR, is_retriable, fails=True)


REASONS: dict[str, Reason] = {
    "user-requested": _requested(Message("Ended by its owner.")),
    "admin-requested": _requested(Message("Ended by an administrator.")),
    "force-terminated": _requested(Message("Ended by force.")),
    "folder-revoked": _requested(Message("Cut off from a folder that is no longer shared with its owner.")),
    GAVE_WAY: _limit(Message("Stopped for a session of higher priority.")),
    STOPPED: _requested(Message("Stopped: its home is stored.")),
    BY_SCHEDULE: _limit(Message("Stopped by its schedule.")),
    STOPPED_TOO_LONG: _limit(Message("It was stopped for longer than stopped sessions are kept.")),
    "replica-ended": _requested(Message("Its endpoint no longer needs it.")),
    "run-stopped": _requested(Message("Another element of its run failed, and the run stops at the first failure.")),
    "agent-stopped": _requested(Message("The agent process was stopped, and native processes end with it.")),
    "self-terminated": Reason(ReasonKind.PROGRAM, Message("The main program ended.")),
    FINISHED: Reason(ReasonKind.PROGRAM, Message("The batch program finished.")),
    "task-failed": _failed_program(Message("The batch program failed.")),
    "out-of-memory": _failed_program(Message("Out of memory: the session exceeded its memory limit.")),
    "scratch-full": _failed_program(Message("The home folder exceeded its limit.")),
    "layer-full": _failed_program(Message("Files outside the home folder exceeded the limit.")),
    **{kind.reason: _idle(kind.reason_text) for kind in IDLE_KINDS.values()},
    "not-connected": _idle(Message("Nobody was connected to it.")),
    "task-timeout": _limit(Message("The batch program exceeded its timeout.")),
    "session-lifetime": _limit(Message("Reached the maximum lifetime of its policy.")),
    "pending-timeout": _not_started(Message("Pending longer than its resource group allows.")),
    "owner-inactive": _not_started(Message("Its owner was deactivated before it started.")),
    "gave-up-scheduling": _not_started(Message("Scheduling attempts used up (limit of its resource group).")),
    "dependency-failed": _not_started(Message("A session that it depends on did not succeed.")),
    "image-not-found": _image(Message("The image is neither on the agent nor in its registry.")),
    "shell-missing": _image(Message("The image has no /bin/sh.")),
    "registry-unreachable": _image(Message("The image is not on the agent and its registry cannot be reached.")),
    "registry-denied": _image(Message("The image is not on the agent and its registry denied access.")),
    "pull-failed": _image(Message("The image could not be pulled.")),
    "pull-broken-off": _image(Message("Pulling the image was interrupted."), is_retriable=True),
    "pull-timeout": _image(Message("Pulling the image took too long."), is_retriable=True),
    "agent-lost": _lost(Message("Its agent has been unreachable for too long.")),
    "agent-terminated": _lost(Message("Its agent was removed permanently.")),
    "agent-drained": _lost(Message("Its agent was drained and the deadline passed."), Status.TERMINATED),
    "node-lost": _lost(Message("The machine of the cluster that it ran on is gone.")),
    "scratch-failed": _fault(Message("The agent could not create the home folder.")),
    "home-missing": _fault(Message("The home that was stored as it stopped cannot be read.")),
    "home-too-large": _fault(Message("The stored home does not fit on the agent."), is_retriable=False),
    "home-broken": _fault(Message("The archive of the stored home cannot be read."), is_retriable=False),
    HOME_NOT_STORED: _fault(
        Message("Its program was ended to stop it, but its home could not be stored."), is_retriable=False
    ),
    "storage-missing": _fault(Message("The agent does not have the storage host of a mounted folder.")),
    "storage-silent": _fault(Message("The storage host of a mounted folder did not answer.")),
    "folder-missing": _fault(Message("A mounted folder is not on its storage host."), is_retriable=False),
    "mount-refused": _fault(Message("The agent could not mount a folder as requested.")),
    "network-pool-exhausted": _fault(Message("The agent has no free network addresses.")),
    "cluster-network-failed": _fault(Message("The agent could not join the network of the cluster session.")),
    "no-network": _fault(Message("The network of its container was removed.")),
    "engine-unreachable": _fault(Message("The container engine of the agent did not answer.")),
    "device-lost": _fault(Message("An allocated device failed before the start.")),
    "accelerator-runtime-missing": _fault(Message("The agent cannot give GPUs to containers.")),
    "accelerator-refused": _fault(Message("NVIDIA's runtime on the agent refused the GPUs.")),
    "name-taken": _fault(Message("Another container on the agent has its name."), is_retriable=False),
    "wrong-deployment": _fault(Message("The agent belongs to another platform."), is_retriable=False),
    "wider-than-any-node": _fault(Message("No machine of the cluster is large enough for it.")),
    "unschedulable": _fault(Message("No machine of the cluster had room for it.")),
    "quota-exceeded": _fault(Message("Its namespace in the cluster had no quota left.")),
    "volume-not-mounted": _fault(Message("The cluster could not mount a volume of its container.")),
    "pod-evicted": _fault(Message("The cluster evicted its container.")),
    "container-killed": _fault(
        Message("Its container was stopped or removed outside the platform."), is_retriable=False
    ),
    "pod-deleted": _fault(Message("Its container was deleted outside the platform."), is_retriable=False),
    "failed-to-start": _fault(Message("The agent could not start it.")),
    "create-timeout": _fault(Message("The start took too long.")),
    "not-ready": _failed_program(Message("No program in it listened on its port in time.")),
    "start-timeout": _fault(Message("The agent did not start it in time.")),
    "sibling-failed": _fault(Message("Another kernel of the session did not start.")),
    "container-missing": _fault(Message("The kernel disappeared from the agent."), is_retriable=False),
    "backend-error": _fault(Message("The agent could not carry out the request.")),
}
BY_ADMINISTRATOR = frozenset({"admin-requested", "force-terminated"})  # of ends that the owner did not request
# An agent of another version may send an unknown code, which counts as a fault.
_UNKNOWN = _fault("", is_retriable=False)
_ASKED_FOR = Reason(ReasonKind.REQUEST, "")


def reason_of(code: str) -> Reason:
    """Return the reason with this code. An unknown code counts as a fault, an empty code as a normal end."""
    return REASONS.get(code, _UNKNOWN if code else _ASKED_FOR)


def codes_of(*kinds: ReasonKind) -> list[str]:
    """Return the codes of these kinds, for queries."""
    return [code for code, reason in REASONS.items() if reason.kind in kinds]
