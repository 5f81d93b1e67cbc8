"""Reads, stops and removes pods. Every change applies only to the pod that was read before."""

from __future__ import annotations

import logging
import math
import time
from typing import Any
from uuid import UUID

from backendai.agent.backends.base import BackendError, Ended, KernelGone
from backendai.agent.backends.kubernetes.api.client import JSON_PATCH, UNREACHABLE, Api, ApiError
from backendai.agent.backends.kubernetes.api.feed import Feed
from backendai.agent.backends.kubernetes.api.names import (
    FINALIZER,
    GENERATION,
    STOPPED,
    AgentIdentity,
    labels_of,
    pod_name,
)
from backendai.agent.backends.kubernetes.logs import PodLogs
from backendai.agent.backends.kubernetes.state import (
    DELETED,
    evicted,
    how_it_ended,
    is_deleted,
    is_kernel,
    is_over,
    kernel_of,
    runs,
    uid_of,
    was_ordered,
    why_deleted,
)

logger = logging.getLogger(__name__)

_GONE = "This kernel is not in the pool any more."
_END_SECONDS = 30.0  # time after the grace period within which a node ends a process
_LOG_SECONDS = 3.0
_TRIES = 4
Pod = dict[str, Any]


class Pods:
    """The pods of one agent's kernels."""

    def __init__(self, api: Api, ours: AgentIdentity, feed: Feed, logs: PodLogs) -> None:
        self.api, self.ours, self.feed, self.logs = api, ours, feed, logs
        self._read: set[str] = set()  # deleted pods whose logs are being read
        self.recent: list[Pod] = []  # the pods of the last list

    def find(self, kernel_id: UUID) -> Pod | None:
        """Return a kernel's pod; None if there is none or it belongs to others. Raises BackendError."""
        pod = self.named(pod_name(kernel_id))
        return pod if pod is not None and self.ours.has(pod) else None

    def named(self, name: str) -> Pod | None:
        """Return the pod with this name, of any owner."""
        try:
            return self.api.ask("GET", self.api.path("pods", name))
        except ApiError as error:
            if error.status == 404 and error.reason == "NotFound":
                return None
            raise

    def running(self, kernel_id: UUID) -> Pod:
        """Return the pod of a running kernel. Raises KernelGone."""
        pod = self.find(kernel_id)
        if pod is None or not runs(pod):
            raise KernelGone("This kernel does not run any more.")
        return pod

    def listed(self) -> list[Pod]:
        """Return the pods of all kernels; one request. Raises BackendError."""
        self.recent = [pod for pod in self.all_of("pods") if is_kernel(pod)]
        return self.recent

    def all_of(self, kind: str) -> list[dict[str, Any]]:
        """Return all objects of a kind that this agent created; one request."""
        return list(self.api.ask("GET", self.api.path(kind), query={"labelSelector": self.ours.selector()})["items"])

    def stop(self, kernel_id: UUID, *, grace: float) -> None:
        """End the main process; its exit code and log are kept. Raises BackendError if the node does not confirm the
        end, as the process may continue."""
        pod = self.find(kernel_id)
        if pod is None or is_over(pod):
            return
        if not was_ordered(pod):
            self._patch(pod, [{"op": "add", "path": "/metadata/annotations", "value": _with_order(pod)}])
        self.end(pod, grace=grace)

    def end(self, pod: Pod, *, grace: float) -> None:
        """Delete this pod and wait until its process has ended. Its exit code and log are kept."""
        kernel_id, uid = kernel_of(pod), uid_of(pod)
        keeper = self.logs.keep(kernel_id) if runs(pod) else None
        if keeper is not None:
            keeper.start()
        # With a grace period of 0, the pod's name would be free while its process still runs.
        self._delete(pod, seconds=max(1, math.ceil(grace)))
        over = self.feed.wait(
            pod_name(kernel_id),
            lambda now: True if now is None or uid_of(now) != uid or is_over(now) else None,
            seconds=grace + _END_SECONDS,
        )
        if keeper is not None:
            try:
                keeper.finish(_LOG_SECONDS)
            except OSError as error:
                raise BackendError(
                    "The log of the kernel cannot be kept: {error}.", error=str(error), code="log-not-kept"
                ) from error
        if not over:
            text = "The node {node} has not ended the pod: it may still run there."
            raise BackendError(text, node=pod["spec"].get("nodeName") or "–", code=UNREACHABLE)

    def remove(self, pod: Pod, *, may_run: bool = True) -> None:
        """End and release this pod. Does nothing if it is gone. Not ``may_run``: its node reports that the pod waits
        for an image, and would not end it before."""
        if may_run and not is_over(pod):
            self.end(pod, grace=0)
        kernel_id, uid = kernel_of(pod), uid_of(pod)
        current = self.named(pod["metadata"]["name"])
        if current is not None and uid_of(current) == uid:
            self._let_go(current)
            gone = self.feed.wait(
                pod_name(kernel_id),
                lambda now: True if now is None or uid_of(now) != uid else None,
                seconds=_END_SECONDS,
            )
            if not gone:
                left = [one for one in current["metadata"].get("finalizers") or [] if one != FINALIZER]
                if left:
                    raise BackendError("The pod is deleted, but {left} keeps it.", left=left, code=UNREACHABLE)
                raise BackendError("The pod is deleted, but it is still there.", code=UNREACHABLE)

    def keep_logs_of_deleted(self, pods: list[Pod]) -> None:
        """Start to read the logs of pods that others have deleted, while the cluster has them."""
        self._read &= {uid_of(pod) for pod in pods}
        for pod in pods:
            if is_deleted(pod) and runs(pod) and not was_ordered(pod) and uid_of(pod) not in self._read:
                self._read.add(uid_of(pod))
                keeper = self.logs.keep(kernel_of(pod))
                keeper.start()
                keeper.finish_later()

    def _let_go(self, pod: Pod) -> None:
        """Remove this platform's finalizer, and delete the pod if that has not happened yet."""
        finalizers = pod["metadata"].get("finalizers") or []
        if FINALIZER in finalizers:
            left = [one for one in finalizers if one != FINALIZER]
            self._patch(pod, [{"op": "replace", "path": "/metadata/finalizers", "value": left}])
        self._delete(pod, seconds=0)  # safe, as the process has ended

    def _delete(self, pod: Pod, *, seconds: int) -> None:
        body = {
            "apiVersion": "v1",
            "kind": "DeleteOptions",
            "gracePeriodSeconds": seconds,
            "preconditions": {"uid": uid_of(pod)},
        }
        # 409: another pod has the name now
        self.api.delete("pods", pod["metadata"]["name"], body, but=(404, 409))

    def _patch(self, pod: Pod, changes: list[dict[str, Any]]) -> None:
        """Patch this pod if it still has the same uid and generation; else does nothing."""
        generation = f"/metadata/labels/{GENERATION.replace('/', '~1')}"
        same = [
            {"op": "test", "path": "/metadata/uid", "value": uid_of(pod)},
            {"op": "test", "path": generation, "value": labels_of(pod)[GENERATION]},
        ]
        path = self.api.path("pods", pod["metadata"]["name"])
        for tries in range(_TRIES):
            try:
                self.api.ask("PATCH", path, [*same, *changes], content=JSON_PATCH)
                return
            except ApiError as error:
                if error.status in (404, 422):  # 422: a test operation failed
                    return
                if error.status != 409 or tries == _TRIES - 1:
                    raise
                time.sleep(0.05)

    def ended(self, kernel_id: UUID) -> Ended | None:
        """Return how a kernel ended; None while it runs. One more request, for events, if others deleted its pod.
        Raises KernelGone, BackendError."""
        pod = self.refuse_gone(kernel_id)
        ended = how_it_ended(pod)
        if ended is None or ended.reason != DELETED or (why := why_deleted(pod, self.events_of(pod))) is None:
            return ended
        return evicted(ended.exit_code, *why)

    def events_of(self, pod: Pod) -> list[dict[str, Any]]:
        """Return the cluster's events about this pod; empty if they cannot be read."""
        query = {"fieldSelector": f"involvedObject.uid={uid_of(pod)}"}
        try:
            found: list[dict[str, Any]] = self.api.ask("GET", self.api.path("events"), query=query)["items"]
        except BackendError:
            return []
        return found

    def refuse_gone(self, kernel_id: UUID) -> Pod:
        """Return a kernel's pod, ended or not. Raises KernelGone."""
        pod = self.find(kernel_id)
        if pod is None:
            raise KernelGone(_GONE)
        return pod


def _with_order(pod: Pod) -> dict[str, str]:
    return {**(pod["metadata"].get("annotations") or {}), STOPPED: "ordered"}
