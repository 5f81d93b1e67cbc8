"""Creates or adopts pods: one per kernel, regardless of how often it is requested."""

from __future__ import annotations

import time
from typing import Any
from uuid import UUID

from backendai.agent.backends.base import (
    SH,
    SHELL_MISSING,
    BackendError,
    ImageNotFound,
    Started,
    StartFailed,
)
from backendai.agent.backends.kubernetes.api.client import Api, ApiError
from backendai.agent.backends.kubernetes.api.names import DEPLOYMENT, GENERATION, KERNEL, labels_of, pod_name
from backendai.agent.backends.kubernetes.images import PoolImages, image_refusal
from backendai.agent.backends.kubernetes.mounts import PodMounts
from backendai.agent.backends.kubernetes.pod import pod_body, secret_body, secret_data
from backendai.agent.backends.kubernetes.pods import Pods
from backendai.agent.backends.kubernetes.pool import KubernetesPool
from backendai.agent.backends.kubernetes.state import (
    StartObstacle,
    is_deleted,
    is_over,
    main_state,
    newest_words,
    obstacle_of,
    runs,
    uid_of,
)
from backendai.agent.backends.shared.starting import KernelStarter, Occupant
from backendai.agent.settings.kubernetes import PoolSettings
from backendai.base.core.messages import Message
from backendai.base.core.slots import MILLI, Slots, format_size
from backendai.base.wire.messages import KernelSpec

_ROOM_SECONDS = 30.0
_PULL_SECONDS = 8.0  # after this time a pull is reported to users
_NO_VOLUME = ("FailedMount", "FailedAttachVolume", "FailedMapVolume")
_CONTAINER_SECONDS = 10.0  # a secret may appear shortly after its pod
Pod = dict[str, Any]


class KubernetesStarter(KernelStarter[Pod]):
    """Starts the pods of one agent."""

    def __init__(
        self, pods: Pods, pool: KubernetesPool, settings: PoolSettings, images: PoolImages, folders: PodMounts
    ) -> None:
        super().__init__(pods.ours.deployment)
        self.least_seconds = settings.wait_seconds
        self._pods, self._pool, self._settings, self._images = pods, pool, settings, images
        self._folders = folders

    @property
    def _api(self) -> Api:
        return self._pods.api

    def _find(self, spec: KernelSpec) -> Pod | None:
        return self._pods.named(pod_name(spec.kernel_id))

    def _occupant(self, found: Pod) -> Occupant:
        labels = labels_of(found)
        return Occupant(labels.get(DEPLOYMENT, ""), int(labels.get(GENERATION, 0)), is_ours=self._pods.ours.has(found))

    def _discard(self, spec: KernelSpec, found: Pod) -> None:
        self._pods.remove(found)

    def _run(self, spec: KernelSpec, found: Pod, deadline: float, *, adopted: bool) -> Started:
        self._wait(spec, found, deadline)
        self._check_folders(spec, found)
        self._images.seen(spec.exact_image)
        return Started(uid_of(found), adopted=adopted)

    def _create(self, spec: KernelSpec) -> Pod | None:
        """Create the pod and return it; None if its name is taken."""
        if spec.generation > 1 and self._find(spec) is not None:
            return None  # the usual case: before an older one is removed, nothing is prepared
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
                raise StartFailed(text, code="wider-than-any-node", **gaps)
        text = "No single machine of the cluster has all of {wanted}."
        raise StartFailed(text, wanted=wanted.describe(), code="wider-than-any-node")

    def _wait(self, spec: KernelSpec, pod: Pod, deadline: float) -> None:
        """Return when the pod runs or has ended. Otherwise remove it and raise the reason."""
        started_at, uid = time.monotonic(), uid_of(pod)

        def outcome(now: Pod | None) -> Pod | Exception | None:
            if now is None or uid_of(now) != uid:
                return StartFailed("Somebody deleted the container while it started.", code="pod-deleted")
            waited, obstacle = time.monotonic() - started_at, obstacle_of(now)
            if obstacle is not None and (error := self._error_of(spec, now, obstacle, waited)):
                return error
            if runs(now) or is_over(now):
                return now
            waits = obstacle is None and not is_deleted(now) and waited > _PULL_SECONDS
            if waits and not self._images.was_just_fetched(spec.exact_image) and self._is_fetching(now):
                return ImageNotFound("The image {image} is being fetched.", image=spec.image)
            return None

        seconds = max(deadline - time.monotonic(), 1.0)
        found = outcome(pod) or self._pods.feed.wait(pod_name(spec.kernel_id), outcome, seconds=seconds)
        if isinstance(found, dict):
            return
        error = found if isinstance(found, Exception) else self._too_late(spec, pod)
        now = self._find(spec) or pod
        if isinstance(error, ImageNotFound):
            self._images.misses(spec.exact_image, str(now["spec"].get("nodeName") or ""))
        self._drop(spec, now, may_run=runs(now) or not isinstance(error, ImageNotFound))
        raise error

    def _check_folders(self, spec: KernelSpec, pod: Pod) -> None:
        """Check the pod's folders; removes the pod and raises StartFailed if one is missing."""
        try:
            self._folders.check(spec, self._folders.prepare(spec) if spec.mounts else [])
        except StartFailed:
            self._drop(spec, pod)
            raise

    def _drop(self, spec: KernelSpec, pod: Pod, *, may_run: bool = True) -> None:
        self._pods.remove(pod, may_run=may_run)
        self.drop_secret(spec.kernel_id)

    def _error_of(self, spec: KernelSpec, pod: Pod, obstacle: StartObstacle, waited: float) -> Exception | None:
        """Return the error for this obstacle; None while it may still disappear."""
        words = obstacle.words
        if obstacle.kind == "image":
            return image_refusal(spec.image, obstacle, self._warning(pod)[1])
        if obstacle.kind == "begin" and SH in words and "no such file" in words:
            return StartFailed(SHELL_MISSING, code="shell-missing")
        if obstacle.kind == "begin":
            return StartFailed("The kernel cannot be started: {words}", words=words or obstacle.reason)
        if obstacle.kind == "container" and waited >= _CONTAINER_SECONDS:
            return StartFailed("The cluster cannot make the container: {words}", words=words or obstacle.reason)
        if obstacle.kind == "room" and waited >= (self._settings.wait_seconds or _ROOM_SECONDS):
            text = "No machine of the cluster has room for this kernel: {words}"
            return StartFailed(text, words=words, code="unschedulable")
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
        if (now := self._find(spec)) is not None and self._is_fetching(now):
            return StartFailed(text, code="pull-timeout")
        return StartFailed(text, code="create-timeout")

    def sweep(self, live: set[UUID], secrets: list[dict[str, Any]]) -> None:
        """Delete the secrets of kernels that are not in ``live``. ``secrets``: all of this agent."""
        kernels = {UUID(labels_of(secret)[KERNEL]) for secret in secrets if KERNEL in labels_of(secret)}
        for kernel_id in kernels - live:
            self.drop_secret(kernel_id)

    def drop_secret(self, kernel_id: UUID) -> None:
        """Delete the kernel's secret. Does nothing if there is none."""
        self._api.delete("secrets", pod_name(kernel_id), but=(403, 404))


def _refusal(error: ApiError) -> BackendError:
    if error.status == 403 and ("exceeded quota" in error.words or "failed quota" in error.words):
        return StartFailed("The namespace has no quota left: {words}", words=error.words, code="quota-exceeded")
    if error.status in (400, 413, 422):
        return StartFailed("The cluster refuses the container: {words}", words=error.words)
    return error  # not reported as a failed start: rights may be restored, and the next try succeed


def _amount(slot: str, amount: int) -> str:
    return format_size(amount // MILLI) if slot == "mem" else f"{amount / MILLI:g}"
