"""Reads a kernel's state from its pod: whether it runs, how it ended, what prevents its start."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

from backendai.agent.backends.base import Ended, ended_by_itself, ended_short_of_memory
from backendai.agent.backends.kubernetes.api.names import GENERATION, KERNEL, LIMIT, MAIN, STOPPED, labels_of, notes_of
from backendai.base.core.messages import Message
from backendai.base.wire.messages import KernelSighting

Pod = Mapping[str, Any]
_NO_IMAGE = ("ErrImagePull", "ImagePullBackOff", "InvalidImageName", "ErrImageNeverPull", "RegistryUnavailable")
_NO_BEGIN = ("ContainerCannotRun", "StartError", "RunContainerError")
DELETED = "pod-deleted"
_DISRUPTIONS = ("Preempted", "TaintManagerEviction")  # events when the cluster itself deletes pods
_CALLED_OFF = "Cancelling deletion"  # the beginning of the event's message if the node has recovered in time
_FORCED_SECONDS = 30.0  # a working node confirms within seconds that a forcibly deleted pod has ended
_NO_CONTAINER = ("CreateContainerConfigError", "CreateContainerError", "RunContainerError")


@dataclass(frozen=True, slots=True)
class StartObstacle:
    """The reason why a pod does not run yet. ``kind``: image, room, container or begin."""

    kind: str
    reason: str
    words: str


def uid_of(pod: Pod) -> str:
    """Return the pod's uid, which differs for another pod of the same name."""
    return str(pod["metadata"]["uid"])


def is_deleted(pod: Pod) -> bool:
    """Return whether the pod was deleted; its process may still run."""
    return bool(pod["metadata"].get("deletionTimestamp"))


def was_ordered(pod: Pod) -> bool:
    """Return whether the portal ordered the pod's end."""
    return STOPPED in notes_of(pod)


def main_state(pod: Pod) -> dict[str, Any]:
    """Return the main container's state: ``waiting``, ``running``, ``terminated``, or empty."""
    for status in pod["status"].get("containerStatuses") or []:
        if status["name"] == MAIN:
            return status.get("state") or {}
    return {}


def runs(pod: Pod) -> bool:
    """Return whether the main process runs, as far as the cluster knows."""
    return "running" in main_state(pod) and not is_lost(pod)


def deleted_for(pod: Pod) -> float:
    """Return the seconds since the pod should have ended; 0 if it was not deleted."""
    if not is_deleted(pod):
        return 0.0
    return (datetime.now(UTC) - datetime.fromisoformat(pod["metadata"]["deletionTimestamp"])).total_seconds()


def is_lost(pod: Pod) -> bool:
    """Return whether the cluster has given up a running pod. It was deleted without grace, like pods of a removed node,
    and no node confirms its end."""
    forced = pod["metadata"].get("deletionGracePeriodSeconds") == 0
    return forced and "running" in main_state(pod) and deleted_for(pod) > _FORCED_SECONDS


def is_over(pod: Pod) -> bool:
    """Return whether the main process has ended or will never start. False for a failed pod whose process may still
    run, and for a pod on a silent node until the cluster gives it up."""
    state, phase = main_state(pod), pod["status"].get("phase")
    if "terminated" in state:
        return True
    if "running" in state:
        return is_lost(pod)
    if phase in ("Failed", "Succeeded"):
        return True
    if not is_deleted(pod):
        return False
    return not pod["spec"].get("nodeName") or pod["metadata"].get("deletionGracePeriodSeconds") == 0


def how_it_ended(pod: Pod) -> Ended | None:
    """Return how the main process ended; None while it runs, before its start, or if unknown."""
    if not is_over(pod):
        return None
    last, status = main_state(pod).get("terminated") or {}, pod["status"]
    code = last.get("exitCode")
    if was_ordered(pod):
        return Ended(code, "", Message("The kernel was stopped."))
    if is_lost(pod):
        node = str(pod["spec"].get("nodeName") or "–")
        return Ended(None, "node-lost", Message("Node {node} has left the cluster or does not answer.", node=node))
    if last.get("reason") == "OOMKilled":
        return ended_short_of_memory(int(code or 0), int(notes_of(pod).get(LIMIT) or 0))
    if status.get("reason"):
        return evicted(code, str(status["reason"]), str(status.get("message") or ""))
    if is_deleted(pod):
        text = Message("Somebody or something outside the platform deleted the container of this kernel.")
        return Ended(code, DELETED, text)
    if code is None:
        return Ended(None, "pod-evicted", Message("The cluster ended the container and does not say why."))
    return ended_by_itself(code)


def evicted(code: int | None, reason: str, words: str) -> Ended:
    """Return the end of a kernel that the cluster ended, with the cluster's reason."""
    text = "The cluster ended the container ({reason}): {words}"
    return Ended(code, "pod-evicted", Message(text, reason=reason, words=words.strip() or "–"))


def why_deleted(pod: Pod, events: Iterable[Mapping[str, Any]]) -> tuple[str, str] | None:
    """Return reason and message if the cluster deleted the pod to free its node; None if others deleted it."""
    for condition in pod["status"].get("conditions") or []:  # since Kubernetes 1.26
        if (condition["type"], condition["status"]) == ("DisruptionTarget", "True"):
            return str(condition.get("reason")), str(condition.get("message") or "")
    newest = max((one for one in events if one.get("reason") in _DISRUPTIONS), key=_told_at, default=None)
    words = str(newest.get("message") or "") if newest else ""
    return None if newest is None or words.startswith(_CALLED_OFF) else (str(newest["reason"]), words)


def obstacle_of(pod: Pod) -> StartObstacle | None:
    """Return what prevents the pod from running, according to its status."""
    state = main_state(pod)
    waiting, ended = state.get("waiting") or {}, state.get("terminated") or {}
    reason, words = str(waiting.get("reason") or ""), str(waiting.get("message") or "")
    if reason in _NO_IMAGE:
        return StartObstacle("image", reason, words)
    if reason in _NO_CONTAINER:
        return StartObstacle("container", reason, words)
    if ended.get("reason") in _NO_BEGIN:
        return StartObstacle("begin", ended["reason"], str(ended.get("message") or ""))
    for condition in pod["status"].get("conditions") or []:
        if condition["type"] == "PodScheduled" and condition["status"] == "False":
            return StartObstacle("room", str(condition.get("reason")), str(condition.get("message") or ""))
    return None


def is_kernel(pod: Pod) -> bool:
    """Return whether a pod with our labels is a kernel. Checks the name, as labels can be copied."""
    return pod["metadata"]["name"] == f"krn-{labels_of(pod).get(KERNEL)}" and GENERATION in labels_of(pod)


def kernel_of(pod: Pod) -> UUID:
    """Return the id of the pod's kernel."""
    return UUID(labels_of(pod)[KERNEL])


def generation_of(pod: Pod) -> int:
    """Return the generation of the pod's kernel."""
    return int(labels_of(pod)[GENERATION])


def sighting(pod: Pod) -> KernelSighting:
    """Return the pod's state for the portal. A pod that has not started neither runs nor has an exit code."""
    code = (main_state(pod).get("terminated") or {}).get("exitCode")
    if code is None and is_over(pod):
        code = -1  # ended with an unknown exit code
    return KernelSighting(
        kernel_id=kernel_of(pod),
        generation=generation_of(pod),
        running=runs(pod),
        container_id=uid_of(pod),
        exit_code=code,
    )


def newest_words(events: Iterable[Mapping[str, Any]]) -> tuple[str, str]:
    """Return reason and message of the newest warning among these events; empty if there is none."""
    warnings = [event for event in events if event.get("type") == "Warning" and event.get("message")]
    newest = max(warnings, key=_told_at, default=None)
    return ("", "") if newest is None else (str(newest.get("reason")), str(newest["message"]).strip()[:500])


def _told_at(event: Mapping[str, Any]) -> str:
    return str(event.get("lastTimestamp") or event.get("eventTime") or "")
