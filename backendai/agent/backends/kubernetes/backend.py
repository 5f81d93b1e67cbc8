"""Kernels as pods of a Kubernetes cluster. An agent is one pool: a namespace, and nodes with certain labels.

``start`` returns once the cluster reports that the main process runs or has ended. The state of a pod on a silent node
is unknown: it counts neither as ended nor as removed.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from pathlib import Path
from uuid import UUID

from backendai.agent.backends.abilities import Imaging, Measuring, Streaming
from backendai.agent.backends.base import (
    NOBODY,
    Ended,
    KernelEvent,
    KernelReading,
    Progress,
    Started,
    StartFailed,
    Terminal,
)
from backendai.agent.backends.kubernetes.api.access import ApiAccess
from backendai.agent.backends.kubernetes.api.client import Api, ApiError
from backendai.agent.backends.kubernetes.api.feed import Feed
from backendai.agent.backends.kubernetes.api.names import KERNEL, SESSION, AgentIdentity, labels_of
from backendai.agent.backends.kubernetes.cluster import Clusters
from backendai.agent.backends.kubernetes.guests import PodGuests
from backendai.agent.backends.kubernetes.images import PoolImages
from backendai.agent.backends.kubernetes.logs import PodLogs
from backendai.agent.backends.kubernetes.mounts import MountingPods, PodMounts
from backendai.agent.backends.kubernetes.networks.borders import Borders
from backendai.agent.backends.kubernetes.networks.policies import Policies
from backendai.agent.backends.kubernetes.networks.probe import Probe
from backendai.agent.backends.kubernetes.notes import notes_of_pods, pool_notes
from backendai.agent.backends.kubernetes.pods import Pods
from backendai.agent.backends.kubernetes.pool import KubernetesPool
from backendai.agent.backends.kubernetes.services import PodServices
from backendai.agent.backends.kubernetes.start import KubernetesStarter
from backendai.agent.backends.kubernetes.state import is_kernel, kernel_of, runs, sighting
from backendai.agent.backends.kubernetes.terminal import PodTerminals
from backendai.agent.backends.kubernetes.usage import PodUsage
from backendai.agent.mounts.hosts import StorageHosts
from backendai.agent.settings.kubernetes import PoolSettings
from backendai.base.core.slots import Slots
from backendai.base.wire.capabilities import Capability
from backendai.base.wire.images import RegistryAccess
from backendai.base.wire.messages import ImageSighting, KernelSighting, KernelSpec, Note

_KEPT_SECONDS = 110.0  # long enough, as the next start detects a revoked role anyway
_KEPT_FAULT_SECONDS = 20.0
# The same resources as kernels name, as a quota rejects pods without them.
_LITTLE = {"cpu": "1m", "memory": "1Mi"}
_RESOURCES = {
    "requests": {**_LITTLE, "ephemeral-storage": "0"},
    "limits": {**_LITTLE, "ephemeral-storage": "1Mi"},
}


class Rehearsal:
    """Caches the result: nearly two minutes, a refusal 20 s."""

    def __init__(self, api: Api, ours: AgentIdentity, clock: Callable[[], float]) -> None:
        self._api, self._ours, self._clock = api, ours, clock
        self._fault, self._asked_at = "", -math.inf

    def fault(self) -> str:
        """Return why the cluster would refuse a pod; empty if it would accept one. Raises BackendError."""
        kept = _KEPT_FAULT_SECONDS if self._fault else _KEPT_SECONDS
        if self._clock() - self._asked_at >= kept:
            self._fault, self._asked_at = self._ask(), self._clock()
        return self._fault

    def doubt(self) -> None:
        """Repeat the test at the next call, as the cluster has just refused a request."""
        self._asked_at = -math.inf

    def _ask(self) -> str:
        pod = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": f"try-{time.time_ns():x}", "labels": self._ours.labels()},
            "spec": {"containers": [{"name": "main", "image": "none", "resources": _RESOURCES}]},
        }
        try:
            self._api.ask("POST", self._api.path("pods"), pod, query={"dryRun": "All"})
        except ApiError as error:
            return "" if "exceeded quota" in error.words or error.status in (400, 422) else error.message
        return ""


_DEFAULT_NAMESPACE = "default"


class KubernetesBackend(MountingPods, Imaging, Streaming, Measuring):
    """The pods of one agent. ``told``: the pool's amounts from the settings, for agents without the right to read
    nodes."""

    name = "kubernetes"
    is_here = False
    capabilities = frozenset(
        {
            Capability.IMAGES,
            Capability.APPS,
            Capability.SERVING,
            Capability.OWN_NETWORK,
            Capability.SIZE_LIMITS,
            Capability.EXECUTION,
        }
    )

    def __init__(
        self,
        data: Path,
        access: ApiAccess,
        settings: PoolSettings,
        *,
        deployment: str,
        agent: str,
        told: Slots | None = None,
        hosts: StorageHosts | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.api = Api(access, settings.namespace or access.namespace or _DEFAULT_NAMESPACE)
        self._ours, self._settings = AgentIdentity(deployment, agent), settings
        self.pool = KubernetesPool(self.api, settings, told, clock)
        self._feed, self._logs = Feed(self.api, self._ours), PodLogs(self.api, data.absolute() / "logs")
        self._pods = Pods(self.api, self._ours, self._feed, self._logs)
        self._images = PoolImages(self.api, self._ours, settings, listed=self.pool.images, nodes=self.pool.selector)
        self._folders = PodMounts(self.api, settings.storage, hosts or StorageHosts())
        self._starter = KubernetesStarter(self._pods, self.pool, settings, self._images, self._folders)
        self._terminals, self._usage = PodTerminals(self.api, self._pods.running), PodUsage(self.api)
        self._feed.on_over = self._terminals.over
        self.guests = self._guests = PodGuests(self.api, self._pods.running, data.absolute() / "guests")
        self._forwards = settings.reach == "forward" or (settings.reach == "auto" and not access.inside)
        self.services = PodServices(self._pods, forwards=self._forwards)
        borders = Borders(self.api, outside=not (access.inside or self._forwards), sources=settings.sources)
        self._clusters, self._policies = Clusters(self.api), Policies(self.api, self._ours, borders)
        self._probe = Probe(self.api, self._ours, settings, self._policies)
        self._rehearsal, self._tidying = Rehearsal(self.api, self._ours, clock), threading.Lock()

    def setup(self) -> None:
        """Create the network policy and start to watch. Repeatable. Raises BackendError."""
        self._policies.keep()
        self._feed.start()
        self._probe.start()

    def capacity(self) -> Slots:
        return self.pool.capacity()

    def architecture(self) -> str:
        return self.pool.architecture() or super().architecture()

    def widest(self) -> list[Slots]:
        return self.pool.widest()

    def engine(self) -> str:
        return f"Kubernetes {self.pool.look().version.removeprefix('v')}"

    def notes(self) -> list[Note]:
        return [
            *pool_notes(self._rehearsal.fault(), forwards=self._forwards, on_node=not self._settings.scratch),
            *self.pool.notes(),
            *self._policies.notes(),
            *self._probe.notes(),
            *notes_of_pods(self._pods.recent),
        ]

    def fault(self) -> str:
        return self._rehearsal.fault()

    def images(self) -> list[ImageSighting]:
        return self._images.sightings()

    def has_image(self, reference: str) -> bool:
        return self._images.has(reference)

    def pull(self, reference: str, *, timeout: float, progress: Progress, access: RegistryAccess = NOBODY) -> None:
        self._images.pull(reference, timeout=timeout, progress=progress, access=access)

    def start(self, spec: KernelSpec) -> Started:
        if spec.network is not None:
            text = "A session that lies in this pool and on other agents has no network of its own."
            raise StartFailed(text, code="cluster-network-failed")
        if spec.cluster_size > 1:
            self._policies.ensure_for(str(spec.session_id))
        try:
            started = self._starter.start(spec)
        except ApiError:
            self._rehearsal.doubt()
            raise
        if not started.adopted:
            self._terminals.started(spec.kernel_id)
        if spec.cluster_size > 1:
            self._clusters.introduce(self._of_session(str(spec.session_id)))
        return started

    def stop(self, kernel_id: UUID, *, grace: float) -> None:
        self._pods.stop(kernel_id, grace=grace)

    def ended(self, kernel_id: UUID) -> Ended | None:
        return self._pods.ended(kernel_id)

    def read_log(self, kernel_id: UUID, *, limit: int) -> tuple[bytes, bool]:
        return self._logs.read(kernel_id, limit) if self._pods.find(kernel_id) is not None else (b"", False)

    def follow_log(self, kernel_id: UUID, *, tail: int | None, follow: bool) -> AsyncIterator[bytes]:
        return self._logs.follow(kernel_id, tail=tail, follow=follow)

    def remove(self, kernel_id: UUID) -> None:
        pod = self._pods.find(kernel_id)
        if pod is not None:
            self._pods.remove(pod)
            self._starter.drop_secret(kernel_id)
        self._logs.drop(kernel_id)
        self._folders.drop(kernel_id)
        self._guests.remove(kernel_id)

    def kernels(self) -> list[KernelSighting]:
        pods = self._pods.listed()
        self._pods.keep_logs_of_deleted(pods)
        return [sighting(pod) for pod in pods]

    def readings(self, kernels: Sequence[KernelSighting]) -> dict[UUID, KernelReading]:
        return self._usage.readings(kernels)

    def sweep(self, live: set[UUID]) -> None:
        self._feed.start()
        everything = {kind: self._pods.all_of(kind) for kind in ("pods", "secrets")}
        pods = [pod for pod in everything["pods"] if is_kernel(pod)]
        here = {kernel_of(pod) for pod in pods}
        self._policies.keep({labels_of(pod)[SESSION] for pod in pods})
        self._images.sweep(everything)
        self._logs.sweep(live | here)
        self._guests.sweep(live | here)
        self._starter.sweep(live | here, everything["secrets"])
        self._tidy(pods, live)

    def _tidy(self, pods: list[dict[str, object]], live: set[UUID]) -> None:
        """Run the work inside pods in a thread, so that a hanging pod delays nothing else."""

        def work() -> None:
            with self._tidying:
                self._terminals.sweep({kernel_of(pod) for pod in pods if runs(pod)} & live)
                self._clusters.sweep(pods)

        if not self._tidying.locked():
            threading.Thread(target=work, name="tidy", daemon=True).start()

    def watch(self) -> Iterator[KernelEvent]:
        for kernel_id in self._feed.ends():
            yield KernelEvent(kernel_id)

    async def open_terminal(self, kernel_id: UUID, *, name: str, rows: int, cols: int) -> Terminal:
        self._feed.start()
        return await self._terminals.open(kernel_id, name=name, rows=rows, cols=cols)

    def close(self) -> None:
        self._folders.hosts.stop()
        self._guests.close()
        self._feed.close()
        self.api.close()

    def _of_session(self, session: str) -> list[dict[str, object]]:
        selector = self._ours.selector(KERNEL, f"{SESSION}={session}")
        return list(self.api.ask("GET", self.api.path("pods"), query={"labelSelector": selector})["items"])
