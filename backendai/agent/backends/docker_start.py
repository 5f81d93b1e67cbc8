"""Get or adopt: one container per kernel, however often and from however many places it is asked for.

The engine lets a name exist once, so creating under the kernel's name is the lock between processes. Only when the
name is taken is anything looked at; the usual start is one create, one start and one inspection.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from uuid import UUID
from weakref import WeakValueDictionary

import docker.errors
from docker.errors import APIError, NotFound

from backendai.agent.backends.base import ImageNotFound, StaleGeneration, Started, StartFailed
from backendai.agent.backends.docker_create import container_body
from backendai.agent.backends.docker_end import is_alive
from backendai.agent.backends.docker_engine import PREFIX, Engine, container_name, said
from backendai.agent.backends.docker_network import Networks
from backendai.agent.backends.docker_scratch import Scratch
from backendai.wire.messages import KernelSpec

HostOptions = Callable[[KernelSpec], dict[str, Any]]
_RETRY_SECONDS = 0.05


class Starter:
    """Starts kernels. ``cpus`` returns the engine's number of cores; ``remove`` ends and clears a kernel."""

    def __init__(
        self,
        engine: Engine,
        networks: Networks,
        scratch: Scratch,
        *,
        cpus: Callable[[], int],
        remove: Callable[[UUID], None],
        host_options: HostOptions,
    ) -> None:
        self._engine = engine
        self._networks = networks
        self._scratch = scratch
        self._cpus = cpus
        self._remove = remove
        self._host_options = host_options
        self._locks: WeakValueDictionary[UUID, threading.Lock] = WeakValueDictionary()
        self._locks_guard = threading.Lock()

    def start(self, spec: KernelSpec) -> Started:
        """Return the kernel, started or adopted (see ``Backend.start``)."""
        if spec.deployment != self._engine.deployment:
            raise StartFailed("This kernel is of another deployment.", code="wrong-deployment")
        deadline = time.monotonic() + spec.create_timeout
        with self._one_at_a_time(spec.kernel_id), self._engine.asking(seconds=spec.create_timeout):
            while time.monotonic() < deadline:
                started = self._create(spec) or self._adopt(spec)
                if started is not None:
                    return started
                time.sleep(_RETRY_SECONDS)
        raise StartFailed(f"An older container was still there after {spec.create_timeout:.0f} seconds.")

    @contextmanager
    def _one_at_a_time(self, kernel_id: UUID) -> Iterator[None]:
        with self._locks_guard:
            lock = self._locks.setdefault(kernel_id, threading.Lock())
        with lock:
            yield

    def _create(self, spec: KernelSpec) -> Started | None:
        """Return the new kernel, or None when its name is taken."""
        try:
            scratch = self._scratch.prepare(spec.kernel_id, spec.scratch_bytes)
        except OSError as error:
            raise StartFailed(f"The scratch folder cannot be made: {error}.", code="scratch-failed") from error
        if spec.cluster_size > 1:
            self._networks.ensure_for(spec)
        body = container_body(
            spec,
            labels=self._engine.labels(),
            scratch=scratch,
            network=self._networks.name_for(spec),
            cpus=self._cpus(),
            extra=self._host_options(spec),
        )
        try:
            self._engine.client.create_container_from_config(body, container_name(spec.kernel_id))
        except APIError as error:
            # the engine looks for the image first: without it a running kernel of this name is still to be adopted
            if self._inspect(spec) is not None or "removal of container" in said(error).lower():
                return None
            self._remove(spec.kernel_id)
            raise self._refusal(spec, error) from error
        return self._run(spec, adopted=False)

    def _adopt(self, spec: KernelSpec) -> Started | None:
        """Return the kernel that has the name already, or None when the name is free now."""
        found = self._inspect(spec)
        if found is None:
            return None
        labels = found["Config"]["Labels"] or {}
        if labels.get(f"{PREFIX}deployment") != self._engine.deployment:
            self._scratch.remove(spec.kernel_id)
            raise StartFailed("Another deployment has a container of this kernel's name.", code="name-taken")
        generation = int(labels[f"{PREFIX}generation"])
        if generation > spec.generation:
            raise StaleGeneration(f"Generation {generation} of this kernel exists, {spec.generation} was ordered.")
        if generation < spec.generation or found["State"]["Status"] in ("removing", "dead"):
            self._engine.discard(found["Id"])  # stale by its generation, even if another agent of ours made it
            self._scratch.remove(spec.kernel_id)
            return None
        if not self._engine.owns(found):
            self._scratch.remove(spec.kernel_id)
            raise StartFailed("Another agent on this engine has this kernel.", code="name-taken")
        if found["State"]["Status"] == "created":
            return self._run(spec, adopted=True)
        return self._started(spec, found, adopted=True)

    def _run(self, spec: KernelSpec, *, adopted: bool) -> Started | None:
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
            if self._inspect(spec) is None:
                return None
            self._remove(spec.kernel_id)
            raise self._refusal(spec, error) from error
        found = self._inspect(spec)
        return self._started(spec, found, adopted=adopted) if found else None

    def _inspect(self, spec: KernelSpec) -> dict[str, Any] | None:
        try:
            found: dict[str, Any] = self._engine.client.inspect_container(container_name(spec.kernel_id))
        except NotFound:
            return None
        return found

    def _started(self, spec: KernelSpec, found: dict[str, Any], *, adopted: bool) -> Started:
        networks = found["NetworkSettings"]["Networks"]
        address = networks.get(self._networks.name_for(spec), {}).get("IPAddress", "") if is_alive(found) else ""
        return Started(found["Id"], adopted, address)

    def _refusal(self, spec: KernelSpec, error: APIError) -> Exception:
        if isinstance(error, docker.errors.ImageNotFound):
            return ImageNotFound(f"The image {spec.image} is not on this node.")
        return StartFailed(f"The container engine cannot start this kernel: {said(error)}.")


def _lacks_network(error: APIError) -> bool:
    words = said(error).lower()
    return "network" in words and "not found" in words
