"""Creates or adopts pods: one per kernel, regardless of how often it is requested.

The API allows each name only once, so creating the pod under the kernel's name is the lock between agents. An existing
pod is read only if the name is taken.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from uuid import UUID
from weakref import WeakValueDictionary

from backendai.agent.backends.base import (
    SH,
    SHELL_MISSING,
    BackendError,
    ImageNotFound,
    StaleGeneration,
    Started,
    StartFailed,
)
from backendai.agent.backends.kubernetes.api.client import Api, ApiError
from backendai.agent.backends.kubernetes.api.names import DEPLOYMENT, KERNEL, labels_of, pod_name
from backendai.agent.backends.kubernetes.folders import PodFolders
from backendai.agent.backends.kubernetes.images import PoolImages, image_refusal
from backendai.agent.backends.kubernetes.pod import pod_body, secret_body, secret_data
from backendai.agent.backends.kubernetes.pods import Pods
from backendai.agent.backends.kubernetes.room import Pool
from backendai.agent.backends.kubernetes.state import (
    Obstacle,
    generation_of,
    is_deleted,
    is_over,
    main_state,
    newest_words,
    obstacle_of,
    runs,
    uid_of,
)
from backendai.agent.settings.kubernetes import PoolSettings
from backendai.base.core.messages import Message
from backendai.base.core.slots import MILLI, Slots, format_size
from backendai.base.wire.messages import KernelSpec

logger = logging.getLogger(__name__)

_RETRY_SECONDS = 0.1
_ROOM_SECONDS = 30.0
_PULL_SECONDS = 8.0  # after this time a pull is reported to users
_NO_VOLUME = ("FailedMount", "FailedAttachVolume", "FailedMapVolume")
_CONTAINER_SECONDS = 10.0  # a secret may appear shortly after its pod
Pod = dict[str, Any]


class KubernetesStarter:
    """Starts kernels."""

    def __init__(self, pods: Pods, pool: Pool, settings: PoolSettings, images: PoolImages, folders: PodFolders) -> None:
        self._pods, self._pool, self._settings, self._images = pods, pool, settings, images
        self._folders = folders
        self._locks: WeakValueDictionary[UUID, threading.Lock] = WeakValueDictionary()
        self._locks_guard = threading.Lock()

    @property
    def _api(self) -> Api:
        return self._pods.api

    def start(self, spec: KernelSpec) -> Started:
        """Start or adopt the kernel (see ``Backend.start``)."""
        if spec.deployment != self._pods.ours.deployment:
            raise StartFailed("This kernel belongs to another deployment.", code="wrong-deployment")
        deadline = time.monotonic() + max(spec.create_timeout, self._settings.wait_seconds)
        with self._one_at_a_time(spec.kernel_id):
            pod, is_new = self._claim(spec, deadline)
            self._wait(spec, pod, deadline)
            self._check_folders(spec, pod)
        self._images.seen(spec.exact_image)
        return Started(uid_of(pod), adopted=not is_new)

    @contextmanager
    def _one_at_a_time(self, kernel_id: UUID) -> Iterator[None]:
        with self._locks_guard:
            lock = self._locks.setdefault(kernel_id, threading.Lock())
        with lock:
            yield

    def _claim(self, spec: KernelSpec, deadline: float) -> tuple[Pod, bool]:
        """Return the pod with the kernel's name, and whether it was created now."""
        while True:
            found = self._pods.named(pod_name(spec.kernel_id)) if spec.generation > 1 else None
            if found is None:
                if (made := self._create(spec)) is not None:
                    return made, True
                found = self._pods.named(pod_name(spec.kernel_id))
            if found is not None and self._is_ours_to_keep(spec, found):
                return found, False
            if time.monotonic() >= deadline:
                raise StartFailed(
                    "An older container was still there after {create_timeout} seconds.",
                    create_timeout=round(spec.create_timeout),
                )
            time.sleep(_RETRY_SECONDS)

    def _is_ours_to_keep(self, spec: KernelSpec, found: Pod) -> bool:
        """Return whether the pod is the requested kernel; removes one of an older generation."""
        ours = self._pods.ours
        if (found["metadata"].get("labels") or {}).get(DEPLOYMENT) != ours.deployment:
            raise StartFailed("Another deployment has a container with this kernel's name.", code="name-taken")
        generation = generation_of(found)
        if generation > spec.generation:
            raise StaleGeneration.of(generation, spec.generation)
        if generation < spec.generation:  # an older generation, possibly of another agent of this deployment
            self._pods.remove(found)
            return False
        if not ours.has(found):
            raise StartFailed("Another agent of this cluster has this kernel.", code="name-taken")
        return True

    def _create(self, spec: KernelSpec) -> Pod | None:
        """Create the pod and return it; None if its name is taken."""
        self._check_width(spec)
        if self._settings.scratch and not spec.scratch_bytes:
            text = "Homes of this pool are volumes of their own, which need a size: set BACKENDAI_SCRATCH_BYTES."
            raise StartFailed(text, code="scratch-failed")
        body = pod_body(
            spec,
            self._settings,
            self._pods.ours,
            folders=self._folders.prepare(spec),
            pull_secret=self._images.secret_for(spec.exact_image),
            node=self._images.node_of(spec.exact_image),
            nodes=self._pool.selector(),
        )
        try:
            if secret_data(spec):
                self._put_secret(secret_body(spec, self._pods.ours))
            return self._api.ask("POST", self._api.path("pods"), body)
        except ApiError as error:
            if error.status == 409 and error.reason == "AlreadyExists":
                return None
            raise _refusal(error) from error

    def _put_secret(self, body: dict[str, Any]) -> None:
        try:
            self._api.ask("POST", self._api.path("secrets"), body)
        except ApiError as error:
            if error.reason != "AlreadyExists":
                raise
            self._api.ask("PUT", self._api.path("secrets", body["metadata"]["name"]), body)

    def _check_width(self, spec: KernelSpec) -> None:
        """Raise StartFailed if no node of the pool is large enough, as the pod would wait for ever."""
        widest, wanted = self._pool.widest(), Slots.parse(spec.slots)
        if not widest or any(wanted.fits(room) for room in widest):
            return
        for slot, amount in wanted.items():
            most = max(room[slot] for room in widest)
            if amount > most:
                gaps = {"has": _amount(slot, most), "slot": slot, "wanted": _amount(slot, amount)}
                text = "The largest machine of the cluster has {has} of {slot}; {wanted} was requested."
                raise StartFailed(Message(text, **gaps), code="wider-than-any-node")
        text = "No single machine of the cluster has all of {wanted}."
        raise StartFailed(Message(text, wanted=wanted.describe()), code="wider-than-any-node")

    def _wait(self, spec: KernelSpec, pod: Pod, deadline: float) -> None:
        """Return when the pod runs or has ended. Otherwise remove it and raise the reason."""
        started_at, uid = time.monotonic(), uid_of(pod)

        def look(now: Pod | None) -> Pod | Exception | None:
            if now is None or uid_of(now) != uid:
                return StartFailed("Somebody deleted the container while it started.", code="pod-deleted")
            obstacle = obstacle_of(now)
            if obstacle is not None and (error := self._verdict(spec, now, obstacle, time.monotonic() - started_at)):
                return error
            if runs(now) or is_over(now):
                return now
            waits = obstacle is None and not is_deleted(now) and time.monotonic() - started_at > _PULL_SECONDS
            if waits and not self._images.was_just_fetched(spec.exact_image) and self._is_fetching(now):
                return ImageNotFound("The image {image} is being fetched.", image=spec.image)
            return None

        answer = look(pod) or self._pods.feed.wait(
            pod_name(spec.kernel_id), look, seconds=max(deadline - time.monotonic(), 1.0)
        )
        if isinstance(answer, dict):
            return
        error = answer if isinstance(answer, Exception) else self._too_late(spec, pod)
        if isinstance(error, ImageNotFound):
            self._images.misses(spec.exact_image, self._node_of(pod))
        now = self._pods.named(pod["metadata"]["name"]) or pod
        self._pods.remove(now, may_run=runs(now) or not isinstance(error, ImageNotFound))
        self.drop_secret(spec.kernel_id)
        raise error

    def _check_folders(self, spec: KernelSpec, pod: Pod) -> None:
        """Check the pod's folders; removes the pod and raises StartFailed if one is missing."""
        try:
            self._folders.check(spec, self._folders.prepare(spec) if spec.mounts else [])
        except StartFailed:
            self._pods.remove(pod)
            self.drop_secret(spec.kernel_id)
            raise

    def _verdict(self, spec: KernelSpec, pod: Pod, obstacle: Obstacle, waited: float) -> Exception | None:
        """Return the error for this obstacle; None while it may still disappear."""
        words = obstacle.words
        if obstacle.kind == "image":
            return image_refusal(spec.image, obstacle, self._warning(pod)[1])
        if obstacle.kind == "begin" and SH in words and "no such file" in words:
            return StartFailed(SHELL_MISSING, code="shell-missing")
        if obstacle.kind == "begin":
            return StartFailed(Message("The kernel cannot be started: {words}", words=words or obstacle.reason))
        if obstacle.kind == "container" and waited >= _CONTAINER_SECONDS:
            return StartFailed(
                Message("The cluster cannot make the container: {words}", words=words or obstacle.reason)
            )
        if obstacle.kind == "room" and waited >= (self._settings.wait_seconds or _ROOM_SECONDS):
            text = Message("No machine of the cluster has room for this kernel: {words}", words=words)
            return StartFailed(text, code="unschedulable")
        return None

    def _warning(self, pod: Pod) -> tuple[str, str]:
        return newest_words(self._pods.events_of(pod))

    def _is_fetching(self, pod: Pod) -> bool:
        if (main_state(pod).get("waiting") or {}).get("reason") != "ContainerCreating":
            return False
        reasons = [event.get("reason") for event in self._pods.events_of(pod)]
        return "Pulling" in reasons and "Pulled" not in reasons

    def _too_late(self, spec: KernelSpec, pod: Pod) -> StartFailed:
        reason, words = self._warning(pod)
        text = Message(
            "The container does not run after {seconds} s. The cluster says: {words}",
            seconds=f"{spec.create_timeout:.0f}",
            words=words or "–",
        )
        if reason in _NO_VOLUME:
            return StartFailed(text, code="volume-not-mounted")
        if (now := self._pods.named(pod_name(spec.kernel_id))) is not None and self._is_fetching(now):
            return StartFailed(text, code="pull-timeout")
        return StartFailed(text, code="create-timeout")

    def _node_of(self, pod: Pod) -> str:
        now = self._pods.named(pod["metadata"]["name"])
        return str(now["spec"].get("nodeName") or "") if now else ""

    def sweep(self, live: set[UUID], secrets: list[dict[str, Any]]) -> None:
        """Delete the secrets of kernels that are not in ``live``. ``secrets``: all of this agent."""
        kernels = {UUID(labels_of(secret)[KERNEL]) for secret in secrets if KERNEL in labels_of(secret)}
        for kernel_id in kernels - live:
            self.drop_secret(kernel_id)

    def drop_secret(self, kernel_id: UUID) -> None:
        """Delete the kernel's secret. Does nothing if there is none."""
        try:
            self._api.ask("DELETE", self._api.path("secrets", pod_name(kernel_id)))
        except ApiError as error:
            if error.status not in (403, 404):
                raise


def _refusal(error: ApiError) -> BackendError:
    if error.status == 403 and ("exceeded quota" in error.words or "failed quota" in error.words):
        return StartFailed(
            Message("The namespace has no quota left: {words}", words=error.words), code="quota-exceeded"
        )
    if error.status in (400, 413, 422):
        return StartFailed(Message("The cluster refuses the container: {words}", words=error.words))
    return error  # not reported as a failed start: rights may be restored, and the next try succeed


def _amount(slot: str, amount: int) -> str:
    return format_size(amount // MILLI) if slot == "mem" else f"{amount / MILLI:g}"
