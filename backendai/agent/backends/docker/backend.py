"""Kernels as containers of a Docker Engine.

``start`` returns once the engine has started the main process, even if it ends at once (a batch command, an image that
exits). ``ended`` then returns its end, and the log is kept until ``remove``.
"""

from __future__ import annotations

import math
import os
import threading
from collections.abc import AsyncIterator, Iterator, Sequence
from pathlib import Path
from typing import Any
from uuid import UUID

import requests
import urllib3
from docker.errors import DockerException, NotFound

from backendai.agent.accelerators.inventory import RUNTIME_MISSING, Accelerators
from backendai.agent.backends.abilities import Committing, Imaging, Measuring, Streaming
from backendai.agent.backends.base import (
    NOBODY,
    BackendError,
    Ended,
    KernelEvent,
    KernelGone,
    KernelReading,
    LimitExceeded,
    Progress,
    SavedImage,
    Started,
    StartFailed,
    Terminal,
)
from backendai.agent.backends.docker.commits import DockerCommits
from backendai.agent.backends.docker.disk.layers import WritableLayers, can_size_layers
from backendai.agent.backends.docker.disk.scratch import OWNER, Scratch
from backendai.agent.backends.docker.engine import PREFIX, Engine
from backendai.agent.backends.docker.guests import DockerGuests
from backendai.agent.backends.docker.images import DockerImages
from backendai.agent.backends.docker.logs import DockerLogs
from backendai.agent.backends.docker.mounts import DockerMounts, MountingContainers, rules_of
from backendai.agent.backends.docker.networks import cluster as docker_cluster
from backendai.agent.backends.docker.networks.firewall import Firewall
from backendai.agent.backends.docker.networks.network import DockerNetworks
from backendai.agent.backends.docker.networks.prepared.holder import NetworkHolders
from backendai.agent.backends.docker.networks.prepared.marks import HolderMarks
from backendai.agent.backends.docker.networks.prepared.networks import PreparedNetworks
from backendai.agent.backends.docker.notes import missing_runtime, notes_of
from backendai.agent.backends.docker.services import DockerServices
from backendai.agent.backends.docker.start import DockerStarter
from backendai.agent.backends.docker.state import cause_of, how_it_ended, is_alive, sighting
from backendai.agent.backends.docker.terminal import DockerTerminals
from backendai.agent.backends.docker.usage import ContainerUsage
from backendai.agent.mounts.homes import StoredHomes, lacks_homes
from backendai.agent.mounts.hosts import StorageHosts
from backendai.agent.mounts.kernel_mounts import KernelMounts
from backendai.agent.settings.kernel_runtime import USUAL_RUNTIME, Runtime
from backendai.base.core.slots import MILLI, Slots
from backendai.base.wire.capabilities import Capability
from backendai.base.wire.images import CommitSpec, RegistryAccess
from backendai.base.wire.messages import ImageSighting, KernelSighting, KernelSpec, Note
from backendai.base.wire.usage import HomeLook


class DockerBackend(MountingContainers, Imaging, Committing, Streaming, Measuring, StoredHomes):
    """The containers of one agent. The constructor is cheap; ``setup`` does the work at the agent's start.

    ``warm_networks``: networks prepared for single-kernel sessions. ``BACKENDAI_NETWORK_POOL``: addresses of networks.
    ``BACKENDAI_SHIELDED``: addresses, separated by commas, that no kernel may reach.
    """

    name = "docker"
    capabilities = frozenset(Capability) - {Capability.NATIVE, Capability.SIMULATED, Capability.ISOLATED}

    def __init__(
        self,
        data: Path,
        *,
        deployment: str,
        agent: str,
        docker_url: str | None = None,
        accelerators: Accelerators | None = None,
        shielded: Sequence[str] | None = None,
        warm_networks: int = 0,
        disk_reserve: float = 0.0,
        hosts: StorageHosts | None = None,
        runtime: Runtime = USUAL_RUNTIME,
    ) -> None:
        self._engine, self._data = Engine(docker_url, deployment, agent), data.absolute()
        self._runtime, self.lacks = runtime, runtime.lacks | docker_cluster.lacks() | _lacks_homes(self._engine)
        self._accelerators, self._info = accelerators or Accelerators(), dict[str, Any]()
        self._networks = DockerNetworks(self._engine, os.environ.get("BACKENDAI_NETWORK_POOL"))
        self._holders = NetworkHolders(self._engine, self._networks.shared)
        marks = HolderMarks(data.absolute() / "networks")
        self._prepared = PreparedNetworks(
            self._engine, self._holders, marks, size=warm_networks, info=self._engine_info
        )
        self._firewall = Firewall(shielded)
        self._scratch = Scratch(data.absolute() / "scratch", self._engine.socket_path)
        self._mounts, self._rules = KernelMounts(data, hosts), lambda: rules_of(self._engine)
        self._layers = self._watched_layers(disk_reserve)
        self._images, self._commits, self._logs = (
            DockerImages(self._engine),
            DockerCommits(self._engine),
            DockerLogs(self._engine),
        )
        self._terminals, self._usage = DockerTerminals(self._engine), ContainerUsage(self._engine)
        self.services = DockerServices(self._engine, self._holders)
        self.guests = None if runtime.has_border else DockerGuests(self._engine, self._scratch)
        self._homes = self._scratch.home
        self._setting_up, self._is_set_up, self._streams = threading.Lock(), False, set[Any]()
        self._starter = self._new_starter()

    def _new_starter(self) -> DockerStarter:
        return DockerStarter(
            self._engine,
            self._networks,
            self._holders,
            self._prepared,
            self._scratch,
            info=self._engine_info,
            remove=self.remove,
            mounts=DockerMounts(self._engine, self._mounts, self.mount_rules),
            accelerators=self._accelerators,
            sizes_layers=lambda: self._engine.socket_path is not None and can_size_layers(self._engine_info()),
            runtime=self._runtime,
        )

    def setup(self) -> None:
        """Create the shared network and the packet rules, and start preparing networks. Repeatable.

        The first ``start`` calls it if the engine was not ready before, and every ``sweep`` repairs them.
        """
        with self._setting_up, self._engine.asking():
            self._networks.ensure_shared()
            self._firewall.setup(is_local=self._engine.socket_path is not None)
            self._is_set_up = True
            self._prepared.open()

    def dismantle(self) -> None:
        """Remove the unused holders and the shared network of a deployment that leaves; the packet rules stay."""
        with self._engine.asking():
            self._prepared.dismantle()
            self._networks.remove_shared()

    def capacity(self) -> Slots:
        info = self._engine_info()
        return Slots({"cpu": info["NCPU"] * MILLI, "mem": info["MemTotal"] * MILLI})

    def engine(self) -> str:
        return f"Docker {self._engine_info().get('ServerVersion', '?')}"

    def storage(self) -> list[Path]:
        if self._engine.socket_path is None:  # the engine and its disks are on another machine
            return []
        return [self._engine_folder(), self._data]

    def notes(self) -> list[Note]:
        with self._engine.asking() as client:
            info = self._info = client.info()
        local, limited = self._engine.socket_path is not None, self._scratch.is_limited
        own = notes_of(info, self._accelerators, self._runtime, is_local=local, scratch_is_limited=limited)
        return [*own, *self._firewall.notes(), *self._prepared.notes(), *self._layers.notes()]

    def fault(self) -> str:
        return missing_runtime(self._info, self._runtime)

    def images(self) -> list[ImageSighting]:
        return self._images.sightings()

    def has_image(self, reference: str) -> bool:
        return self._images.has(reference)

    def pull(self, reference: str, *, timeout: float, progress: Progress, access: RegistryAccess = NOBODY) -> None:
        self._images.pull(reference, timeout=timeout, progress=progress, access=access)

    def commit(self, spec: CommitSpec) -> SavedImage:
        return self._commits.make(spec)

    def push_image(self, spec: CommitSpec, *, progress: Progress) -> str:
        return self._commits.push(spec, progress)

    def drop_image(self, reference: str) -> bool:
        return self._commits.drop(reference)

    def home(self, kernel_id: UUID) -> HomeLook | None:
        return self._scratch.look(kernel_id)

    def start(self, spec: KernelSpec) -> Started:
        if not self._is_set_up:
            self.setup()
        with self._prepared.undisturbed():
            try:
                started = self._starter.start(spec)
            except StartFailed as error:
                if error.code == RUNTIME_MISSING:
                    self._accelerators.withhold("cuda", "the engine cannot give it to containers")
                raise
        if not started.adopted:
            self._terminals.started(spec.kernel_id)
        return started

    def stop(self, kernel_id: UUID, *, grace: float) -> None:
        with self._engine.asking() as client:
            found = self._engine.find(kernel_id)
            if found is None or not is_alive(found):
                return
            self._scratch.mark_stopped(kernel_id)
            try:
                if found["State"]["Paused"]:
                    (client.unpause if grace > 0 else client.kill)(found["Id"])
                client.stop(found["Id"], timeout=math.ceil(grace))
            except NotFound:
                return

    def freeze(self, kernel_id: UUID) -> None:
        with self._engine.asking() as client:
            found = self._engine.running(kernel_id)
            if not found["State"]["Paused"]:
                client.pause(found["Id"])

    def thaw(self, kernel_id: UUID) -> None:
        with self._engine.asking() as client:
            found = self._engine.find(kernel_id)
            if found is not None and found["State"]["Paused"]:
                client.unpause(found["Id"])

    def ended(self, kernel_id: UUID) -> Ended | None:
        with self._engine.asking():
            found = self._engine.find(kernel_id)
            if found is None:
                raise KernelGone("This kernel is no longer on its agent.")
            ordered = self._scratch.was_stopped(kernel_id)
            cause = "" if ordered else cause_of(self._engine, found)
        return how_it_ended(found, ordered=ordered, cause=cause)

    def read_log(self, kernel_id: UUID, *, limit: int) -> tuple[bytes, bool]:
        return self._logs.read(kernel_id, limit)

    def follow_log(self, kernel_id: UUID, *, tail: int | None, follow: bool) -> AsyncIterator[bytes]:
        return self._logs.follow(kernel_id, tail=tail, follow=follow)

    def remove(self, kernel_id: UUID) -> None:
        with self._prepared.undisturbed(), self._engine.asking():
            found = self._engine.find(kernel_id)
            if found is not None:
                self._engine.discard(found["Id"])
                self._networks.leave(found)
                self._holders.leave(found)
        self._mounts.remove(kernel_id)
        self._scratch.remove(kernel_id)

    def kernels(self) -> list[KernelSighting]:
        with self._engine.asking():
            listed = self._engine.listed()
        return [sighting(container) for container in listed]

    def readings(self, kernels: Sequence[KernelSighting]) -> dict[UUID, KernelReading]:
        return self._usage.readings(kernels)

    def sweep(self, live: set[UUID]) -> None:
        self.setup()
        with self._engine.asking():
            listed = self._engine.listed()
            here = {UUID(container["Labels"][f"{PREFIX}kernel"]) for container in listed}
            self._networks.sweep({UUID(container["Labels"][f"{PREFIX}session"]) for container in listed})
            self._prepared.sweep()
        self._commits.sweep()
        self._mounts.sweep(live | here)
        self._scratch.sweep(live | here)
        running = {kernel.kernel_id for kernel in map(sighting, listed) if kernel.running}
        self._terminals.sweep(running & live)

    def overfull(self) -> list[LimitExceeded]:
        return self._layers.overfull()

    def watch(self) -> Iterator[KernelEvent]:
        try:
            with self._engine.asking() as client:
                labels = [*self._engine.label_filter(), f"{PREFIX}kernel"]
                filters = {"type": "container", "event": "die", "label": labels}
                stream = client.events(filters=filters, decode=True)
        except BackendError:
            return
        self._streams.add(stream)
        try:
            for event in stream:
                yield KernelEvent(UUID(event["Actor"]["Attributes"][f"{PREFIX}kernel"]))
        except (DockerException, requests.RequestException, urllib3.exceptions.HTTPError, ValueError, KeyError):
            return
        finally:
            self._streams.discard(stream)

    async def open_terminal(self, kernel_id: UUID, *, name: str, rows: int, cols: int) -> Terminal:
        return await self._terminals.open(kernel_id, name=name, rows=rows, cols=cols)

    def close(self) -> None:
        for stream in list(self._streams):
            stream.close()
        self._mounts.hosts.stop()
        self._prepared.close()
        self._engine.close()

    def _watched_layers(self, reserve: float) -> WritableLayers:
        homes, promised = self._scratch.overfull, self._scratch.promised
        return WritableLayers(
            self._engine, folder=self._engine_folder, reserve=reserve, homes=homes, homes_promised=promised
        )

    def _engine_folder(self) -> Path:
        return Path(str(self._engine_info().get("DockerRootDir", "/var/lib/docker")))

    def _engine_info(self) -> dict[str, Any]:
        if not self._info:
            with self._engine.asking() as client:
                self._info = client.info()
        return self._info


def _lacks_homes(engine: Engine) -> frozenset[Capability]:
    """Return the capability to store homes if the agent may not read and own the files of containers."""
    reads_homes = engine.socket_path is not None and os.geteuid() in (0, OWNER)
    return lacks_homes() if reads_homes else frozenset({Capability.HOMES})
