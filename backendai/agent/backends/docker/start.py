"""Creates or adopts containers: one per kernel, regardless of how often it is requested.

The engine allows each name only once, so creating the container under the kernel's name is the lock between processes.
An existing container is inspected only if the name is taken. A start is one create and one start call; for a single
kernel, a check of its prepared network precedes them.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from http import HTTPStatus
from pathlib import Path
from typing import Any
from uuid import UUID
from weakref import WeakValueDictionary

import docker.errors
from docker.errors import APIError, NotFound

from backendai.agent.accelerators.base import Grant
from backendai.agent.accelerators.inventory import RUNTIME_MISSING, Accelerators
from backendai.agent.backends.base import ImageNotFound, StaleGeneration, Started, StartFailed
from backendai.agent.backends.docker.create import ACCESS, container_body, options_of
from backendai.agent.backends.docker.disk.scratch import OWNER, Scratch, fill_for
from backendai.agent.backends.docker.engine import PREFIX, Engine, container_name, said
from backendai.agent.backends.docker.mounts import DockerMounts
from backendai.agent.backends.docker.networks.holder import HOSTNAME, Holder, Holders, holder_of, joining
from backendai.agent.backends.docker.networks.network import Networks
from backendai.agent.backends.docker.networks.prepared import WarmNetworks
from backendai.agent.backends.docker.seccomp import own_profile
from backendai.agent.backends.guest_host import INSIDE as GUEST_INSIDE
from backendai.agent.backends.shared.cluster_files import CLIENT, SERVER, lacking, write_cluster
from backendai.agent.backends.shared.kit import INSIDE as KIT_INSIDE
from backendai.agent.mounts.kernel_mounts import Binds
from backendai.agent.settings.kernel_runtime import Runtime
from backendai.base.wire.messages import KernelSpec


class DockerAccess:
    """Writes the files, and records kernels whose image lacks SSH."""

    def __init__(self, engine: Engine, mounts: DockerMounts) -> None:
        self._engine, self._mounts = engine, mounts

    def prepare(self, spec: KernelSpec, folder: Path) -> None:
        """Write the files of a cluster session's kernel into the folder that it mounts. Raises OSError."""
        write_cluster(folder, spec, ACCESS, owner=OWNER if os.geteuid() == 0 else None)

    def look(self, spec: KernelSpec, container_id: str) -> None:
        """Record whether the image of a cluster session's kernel lacks SSH; the container need not run. Raises
        requests.RequestException."""
        if spec.keys is None:
            return
        missing = [path.name for path in (Path(CLIENT), Path(SERVER)) if not self._has(container_id, str(path))]
        if told := ACCESS.no_ssh or lacking(missing):
            self._mounts.also_left_out(spec.kernel_id, told)

    def _has(self, container_id: str, path: str) -> bool:
        client = self._engine.client
        url = f"{client.base_url}/v{client.api_version}/containers/{container_id}/archive"
        response = client.head(url, params={"path": path}, timeout=client.timeout)
        if response.status_code == HTTPStatus.NOT_FOUND:
            return False
        response.raise_for_status()
        return True


logger = logging.getLogger(__name__)

_NO_GPU_DRIVER = "could not select device driver"
_GPU_REFUSED = "nvidia-container-"
_RETRY_SECONDS = 0.05
_NEVER = "0001-"


class _CannotJoin(Exception):
    """The kernel did not start in a holder's network; it never ran, and its container was removed."""


class DockerStarter:
    """Starts kernels. ``info`` returns the engine's description; ``remove`` ends and removes a kernel; ``sizes_layers``
    returns whether the engine seems able to limit writable layers."""

    def __init__(
        self,
        engine: Engine,
        networks: Networks,
        holders: Holders,
        warm: WarmNetworks,
        scratch: Scratch,
        *,
        info: Callable[[], Mapping[str, Any]],
        remove: Callable[[UUID], None],
        accelerators: Accelerators,
        mounts: DockerMounts,
        sizes_layers: Callable[[], bool],
        runtime: Runtime,
    ) -> None:
        self._engine = engine
        self._networks = networks
        self._holders = holders
        self._warm = warm
        self._scratch = scratch
        self._info, self._runtime = info, runtime
        self._sizes_layers, self._size_refused = sizes_layers, False
        self._remove = remove
        self._accelerators, self._mounts, self._access = accelerators, mounts, DockerAccess(engine, mounts)
        self._locks: WeakValueDictionary[UUID, threading.Lock] = WeakValueDictionary()
        self._locks_guard = threading.Lock()

    def start(self, spec: KernelSpec) -> Started:
        """Start or adopt the kernel (see ``Backend.start``)."""
        if spec.deployment != self._engine.deployment:
            raise StartFailed("This kernel belongs to another deployment.", code="wrong-deployment")
        deadline = time.monotonic() + spec.create_timeout
        may_join = spec.cluster_size == 1 and spec.hostname == HOSTNAME and not self._runtime.has_border
        with self._one_at_a_time(spec.kernel_id), self._engine.asking(seconds=spec.create_timeout):
            while True:
                try:
                    started = self._create(spec, may_join=may_join) or self._adopt(spec)
                except _CannotJoin:
                    may_join = False
                    continue  # one try without a holder, even after the deadline, as the kernel itself is fine
                if started is not None:
                    return started
                if time.monotonic() >= deadline:
                    break
                time.sleep(_RETRY_SECONDS)
        raise StartFailed(
            "An older container was still there after {create_timeout} seconds.",
            create_timeout=round(spec.create_timeout),
        )

    @contextmanager
    def _one_at_a_time(self, kernel_id: UUID) -> Iterator[None]:
        with self._locks_guard:
            lock = self._locks.setdefault(kernel_id, threading.Lock())
        with lock:
            yield

    def _create(self, spec: KernelSpec, *, may_join: bool) -> Started | None:
        """Create and start the kernel; None if its name is taken. Raises _CannotJoin."""
        given = self._given(spec)
        if given is None:
            return None
        try:
            scratch = self._scratch.prepare(spec.kernel_id, spec.scratch_bytes, fill_for(spec, ACCESS))
            authorities = self._scratch.prepare_authorities(spec)
            guest, kit = self._scratch.prepare_guest(spec.kernel_id), self._scratch.kit.prepare()
            self._access.prepare(spec, guest)
        except OSError as error:
            raise StartFailed(
                "The scratch folder cannot be made: {error}.", error=str(error), code="scratch-failed"
            ) from error
        if spec.cluster_size > 1:
            self._networks.ensure_for(spec)
        body = container_body(
            self._networks.addressed(spec),
            labels=self._engine.labels(),
            scratch=scratch,
            network=self._networks.name_for(spec),
            cpus=int(self._info()["NCPU"]),
            grant=given[0],
            binds=given[1],
            authorities=authorities,
            read_only={GUEST_INSIDE: guest, KIT_INSIDE: kit},
            sizes_layers=not self._size_refused and self._sizes_layers(),
        )
        body["HostConfig"] |= options_of(self._runtime, body["HostConfig"]["Memory"])
        if profile := own_profile(self._info()):
            body["HostConfig"]["SecurityOpt"].append(f"seccomp={profile}")
        if not may_join:
            return self._make(spec, body, None)
        with self._warm.claimed(body["HostConfig"].get("Runtime")) as holder:
            return self._make(spec, joining(body, holder) if holder else body, holder)

    def _given(self, spec: KernelSpec) -> tuple[Grant, Binds] | None:
        """Return the kernel's devices and folders. None if they fail but the kernel exists, as it already has them."""
        try:
            return self._accelerators.grant(spec), self._mounts.prepare(spec)
        except StartFailed:
            if self._inspect(spec) is None:
                raise
            return None

    def _make(self, spec: KernelSpec, body: dict[str, Any], holder: Holder | None) -> Started | None:
        try:
            made = self._create_container(spec, body)
        except APIError as error:
            # the engine checks the image before the name: a missing image does not exclude a kernel to adopt
            is_taken = self._inspect(spec) is not None or "removal of container" in said(error).lower()
            is_missing = isinstance(error, docker.errors.ImageNotFound)
            if holder is not None and (is_taken or is_missing):
                self._warm.give_back(holder)
            if is_taken:
                return None
            if holder is not None and not is_missing:
                self._holders.remove(holder.container_id)
                raise _CannotJoin from error
            self._remove(spec.kernel_id)
            raise self._refusal(spec, error) from error
        self._access.look(spec, made["Id"])
        return self._run(spec, Started(made["Id"], adopted=False))

    def _create_container(self, spec: KernelSpec, body: dict[str, Any]) -> dict[str, Any]:
        """Return the engine's answer. If the engine refuses a layer limit, it is omitted from now on."""
        name = container_name(spec.kernel_id)
        try:
            made: dict[str, Any] = self._engine.client.create_container_from_config(body, name)
        except APIError as error:
            if "StorageOpt" not in body["HostConfig"] or "storage-opt" not in said(error).lower():
                raise
            logger.warning("the engine cannot limit the writable layer of containers: %s", said(error))
            self._size_refused = True
            host = {option: value for option, value in body["HostConfig"].items() if option != "StorageOpt"}
            made = self._engine.client.create_container_from_config({**body, "HostConfig": host}, name)
        return made

    def _adopt(self, spec: KernelSpec) -> Started | None:
        """Return the existing kernel with this name; None if the name is free now."""
        found = self._inspect(spec)
        if found is None:
            return None
        labels = found["Config"]["Labels"] or {}
        if labels.get(f"{PREFIX}deployment") != self._engine.deployment:
            self._scratch.remove(spec.kernel_id)
            raise StartFailed("Another deployment has a container with this kernel's name.", code="name-taken")
        generation = int(labels[f"{PREFIX}generation"])
        if generation > spec.generation:
            raise StaleGeneration.of(generation, spec.generation)
        if generation < spec.generation or found["State"]["Status"] in ("removing", "dead"):
            self._discard(found)  # an older generation, possibly of another agent of this deployment
            self._scratch.remove(spec.kernel_id)
            return None
        if not self._engine.owns(found):
            self._scratch.remove(spec.kernel_id)
            raise StartFailed("Another agent on this engine has this kernel.", code="name-taken")
        if found["State"]["Status"] == "created":
            return self._run(spec, Started(found["Id"], adopted=True))
        return Started(found["Id"], adopted=True)

    def _run(self, spec: KernelSpec, made: Started) -> Started | None:
        """Start the created container and return the kernel; None if the container is gone."""
        name = container_name(spec.kernel_id)
        try:
            try:
                self._engine.client.start(name)
            except APIError as error:
                if not _lacks_network(error):
                    raise
                self._networks.ensure_for(spec)
                self._engine.client.start(name)
        except APIError as error:
            found = self._inspect(spec)
            if found is None:
                return None
            if holder_of(found) and found["State"]["StartedAt"].startswith(_NEVER):
                self._discard(found)
                raise _CannotJoin from error
            self._remove(spec.kernel_id)
            raise self._refusal(spec, error) from error
        try:
            self._mounts.check(spec)
        except StartFailed:
            self._remove(spec.kernel_id)
            raise
        return made

    def _discard(self, found: dict[str, Any]) -> None:
        self._engine.discard(found["Id"])
        self._holders.leave(found)

    def _inspect(self, spec: KernelSpec) -> dict[str, Any] | None:
        try:
            found: dict[str, Any] = self._engine.client.inspect_container(container_name(spec.kernel_id))
        except NotFound:
            return None
        return found

    def _refusal(self, spec: KernelSpec, error: APIError) -> Exception:
        if isinstance(error, docker.errors.ImageNotFound):
            return ImageNotFound("The image {image} is not on this agent.", image=spec.image)
        words = said(error)
        if spec.devices and _NO_GPU_DRIVER in words:
            return StartFailed(
                "The container engine of this agent cannot give GPUs to containers: {words}.",
                words=words,
                code=RUNTIME_MISSING,
            )
        if spec.devices and _GPU_REFUSED in words:
            return StartFailed("NVIDIA's container runtime refused: {words}.", words=words, code="accelerator-refused")
        return StartFailed("The container engine cannot start this kernel: {words}.", words=words)


def _lacks_network(error: APIError) -> bool:
    words = said(error).lower()
    return "network" in words and "not found" in words
