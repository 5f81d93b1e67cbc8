"""Creates or adopts containers: one per kernel, regardless of how often it is requested.

An existing container is inspected only if the name is taken. A start is one create and one start call; for a single
kernel, a check of its prepared network precedes them.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any
from uuid import UUID

import docker.errors
from docker.errors import APIError

from backendai.agent.accelerators.base import Grant
from backendai.agent.accelerators.inventory import RUNTIME_MISSING, Accelerators
from backendai.agent.backends.base import ImageNotFound, Started, StartFailed
from backendai.agent.backends.docker.create import ACCESS, container_body, options_of
from backendai.agent.backends.docker.disk.scratch import OWNER, Scratch, fill_for
from backendai.agent.backends.docker.engine import PREFIX, Engine, container_name, words_of
from backendai.agent.backends.docker.mounts import DockerMounts
from backendai.agent.backends.docker.networks.network import DockerNetworks
from backendai.agent.backends.docker.networks.prepared.holder import (
    HOSTNAME,
    NetworkHolder,
    NetworkHolders,
    holder_of,
    joining,
)
from backendai.agent.backends.docker.networks.prepared.networks import PreparedNetworks
from backendai.agent.backends.docker.seccomp import own_profile
from backendai.agent.backends.guest_host import INSIDE as GUEST_INSIDE
from backendai.agent.backends.shared.cluster_files import CLIENT, SERVER, lacking, write_cluster
from backendai.agent.backends.shared.kit import INSIDE as KIT_INSIDE
from backendai.agent.backends.shared.starting import KernelStarter, Occupant
from backendai.agent.mounts.kernel_mounts import Binds
from backendai.agent.settings.kernel_runtime import Runtime
from backendai.base.wire.messages import KernelSpec

logger = logging.getLogger(__name__)

_NO_GPU_DRIVER = "could not select device driver"
_GPU_REFUSED = "nvidia-container-"
_NEVER = "0001-"
Container = dict[str, Any]


class _CannotJoin(Exception):
    """The kernel did not start in a holder's network; it never ran, and its container was removed."""


class DockerStarter(KernelStarter[Container]):
    """Starts kernels. ``info`` returns the engine's description; ``remove`` ends and removes a kernel; ``sizes_layers``
    returns whether the engine seems able to limit writable layers."""

    def __init__(
        self,
        engine: Engine,
        networks: DockerNetworks,
        holders: NetworkHolders,
        prepared: PreparedNetworks,
        scratch: Scratch,
        *,
        info: Callable[[], Mapping[str, Any]],
        remove: Callable[[UUID], None],
        accelerators: Accelerators,
        mounts: DockerMounts,
        sizes_layers: Callable[[], bool],
        runtime: Runtime,
    ) -> None:
        super().__init__(engine.deployment)
        self._engine = engine
        self._networks = networks
        self._holders = holders
        self._prepared = prepared
        self._scratch = scratch
        self._info, self._runtime = info, runtime
        self._sizes_layers, self._size_refused = sizes_layers, False
        self._remove = remove
        self._accelerators, self._mounts = accelerators, mounts
        self._alone: set[UUID] = set()  # kernels that could not join a prepared network

    def start(self, spec: KernelSpec) -> Started:
        """Start or adopt the kernel (see ``Backend.start``)."""
        try:
            with self._engine.asking(seconds=spec.create_timeout):
                return super().start(spec)
        finally:
            self._alone.discard(spec.kernel_id)

    def _try(self, spec: KernelSpec, deadline: float) -> Started | None:
        try:
            return super()._try(spec, deadline)
        except _CannotJoin:  # one try without a holder, even after the deadline, as the kernel itself is fine
            self._alone.add(spec.kernel_id)
            return self._try(spec, deadline)

    def _create(self, spec: KernelSpec) -> Container | None:
        """Create the container; None if its name is taken. Raises _CannotJoin."""
        given = self._given(spec)
        if given is None or (spec.home is not None and self._find(spec) is not None):
            return None
        try:
            scratch = self._prepare_scratch(spec)
            authorities = self._scratch.prepare_authorities(spec)
            guest, kit = self._scratch.prepare_guest(spec.kernel_id), self._scratch.kit.prepare()
            write_cluster(guest, spec, ACCESS, owner=OWNER if os.geteuid() == 0 else None)
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
        if not self._may_join(spec):
            return self._make(spec, body, None)
        with self._prepared.claimed(body["HostConfig"].get("Runtime")) as holder:
            return self._make(spec, joining(body, holder) if holder else body, holder)

    def _prepare_scratch(self, spec: KernelSpec) -> Path:
        """Return the scratch folder. A stored home is always unpacked: one that an interrupted start left may be older.
        Raises OSError, and StartFailed after cleaning up."""
        if spec.home is not None:
            self._scratch.remove(spec.kernel_id)
        try:
            fill = fill_for(spec, ACCESS, self._mounts.hosts)
            return self._scratch.prepare(spec.kernel_id, spec.scratch_bytes, fill)
        except StartFailed:
            self._remove(spec.kernel_id)
            raise

    def _may_join(self, spec: KernelSpec) -> bool:
        is_usual = spec.cluster_size == 1 and spec.hostname == HOSTNAME and not self._runtime.has_border
        return is_usual and spec.kernel_id not in self._alone

    def _given(self, spec: KernelSpec) -> tuple[Grant, Binds] | None:
        """Return the kernel's devices and folders. None if they fail but the kernel exists, as it already has them."""
        try:
            return self._accelerators.grant(spec), self._mounts.prepare(spec)
        except StartFailed:
            if self._find(spec) is None:
                raise
            return None

    def _make(self, spec: KernelSpec, body: dict[str, Any], holder: NetworkHolder | None) -> Container | None:
        try:
            made = self._create_container(spec, body)
        except APIError as error:
            # the engine checks the image before the name: a missing image does not exclude a kernel to adopt
            is_taken = self._find(spec) is not None or "removal of container" in words_of(error).lower()
            is_missing = isinstance(error, docker.errors.ImageNotFound)
            if holder is not None and (is_taken or is_missing):
                self._prepared.give_back(holder)
            if is_taken:
                return None
            if holder is not None and not is_missing:
                self._holders.remove(holder.container_id)
                raise _CannotJoin from error
            self._remove(spec.kernel_id)
            raise self._refusal(spec, error) from error
        self._check_ssh(spec, made["Id"])
        return made

    def _check_ssh(self, spec: KernelSpec, container_id: str) -> None:
        """Record whether the image of a cluster session's kernel lacks SSH; the container need not run."""
        if spec.keys is None:
            return
        missing = [Path(path).name for path in (CLIENT, SERVER) if not self._engine.has_file(container_id, path)]
        if why := ACCESS.no_ssh or lacking(missing):
            self._mounts.also_left_out(spec.kernel_id, why)

    def _create_container(self, spec: KernelSpec, body: dict[str, Any]) -> Container:
        """Return the engine's answer. If the engine refuses a layer limit, it is omitted from now on."""
        name = container_name(spec.kernel_id)
        try:
            made: Container = self._engine.client.create_container_from_config(body, name)
        except APIError as error:
            if "StorageOpt" not in body["HostConfig"] or "storage-opt" not in words_of(error).lower():
                raise
            logger.warning("the engine cannot limit the writable layer of containers: %s", words_of(error))
            self._size_refused = True
            host = {option: value for option, value in body["HostConfig"].items() if option != "StorageOpt"}
            made = self._engine.client.create_container_from_config({**body, "HostConfig": host}, name)
        return made

    def _find(self, spec: KernelSpec) -> Container | None:
        return self._engine.inspect(container_name(spec.kernel_id))

    def _occupant(self, found: Container) -> Occupant:
        labels = found["Config"]["Labels"] or {}
        return Occupant(
            labels.get(f"{PREFIX}deployment", ""),
            int(labels.get(f"{PREFIX}generation", 0)),
            is_ours=self._engine.owns(found),
            is_whole=found["State"]["Status"] not in ("removing", "dead"),
        )

    def _discard(self, spec: KernelSpec, found: Container) -> None:
        self._discard_container(found)
        self._leave(spec)

    def _leave(self, spec: KernelSpec) -> None:
        self._scratch.remove(spec.kernel_id)

    def _run(self, spec: KernelSpec, found: Container, deadline: float, *, adopted: bool) -> Started | None:
        if adopted and found["State"]["Status"] != "created":
            return Started(found["Id"], adopted=True)
        try:
            self._start_container(spec)
        except APIError as error:
            now = self._find(spec)
            if now is None:
                return None
            if holder_of(now) and now["State"]["StartedAt"].startswith(_NEVER):
                self._discard_container(now)
                raise _CannotJoin from error
            self._remove(spec.kernel_id)
            raise self._refusal(spec, error) from error
        try:
            self._mounts.check(spec)
        except StartFailed:
            self._remove(spec.kernel_id)
            raise
        return Started(found["Id"], adopted=adopted)

    def _start_container(self, spec: KernelSpec) -> None:
        try:
            self._engine.client.start(container_name(spec.kernel_id))
        except APIError as error:
            if not _lacks_network(error):
                raise
            self._networks.ensure_for(spec)
            self._engine.client.start(container_name(spec.kernel_id))

    def _discard_container(self, found: Container) -> None:
        self._engine.discard(found["Id"])
        self._holders.leave(found)

    def _refusal(self, spec: KernelSpec, error: APIError) -> Exception:
        if isinstance(error, docker.errors.ImageNotFound):
            return ImageNotFound("The image {image} is not on this agent.", image=spec.image)
        words = words_of(error)
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
    words = words_of(error).lower()
    return "network" in words and "not found" in words
