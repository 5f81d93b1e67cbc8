"""Kernels as virtual machines: QEMU with the files of an OCI image, one process per kernel.

Each kernel has a folder and a supervisor (``runner``), which outlives the agent. The guest's first process
(``init``) serves everything else over one virtio-serial port. Virtual machines continue when the agent stops.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import threading
from collections.abc import Sequence
from pathlib import Path
from uuid import UUID

from backendai.agent.backends.base import (
    NOBODY,
    SH,
    BackendError,
    ImageNotFound,
    KernelReading,
    Progress,
    Started,
    StartFailed,
    Terminal,
)
from backendai.agent.backends.docker.engine import Engine
from backendai.agent.backends.native.folder import KernelFolder
from backendai.agent.backends.native.supervised import SupervisedBackend
from backendai.agent.backends.qemu.boot import newest_kernel
from backendai.agent.backends.qemu.channel.ask import ask, open_terminal
from backendai.agent.backends.qemu.channel.frames import program_words
from backendai.agent.backends.qemu.command import TCG
from backendai.agent.backends.qemu.guests import QemuGuests
from backendai.agent.backends.qemu.images import QemuImages
from backendai.agent.backends.qemu.networks.addresses import GuestAddresses, devices_into
from backendai.agent.backends.qemu.networks.network import QemuNetwork
from backendai.agent.backends.qemu.notes import describe
from backendai.agent.backends.qemu.services import QemuServices
from backendai.agent.backends.qemu.start import QemuStarter, slowness
from backendai.agent.backends.qemu.tools import KERNEL, QemuTools
from backendai.agent.backends.qemu.trial import Acceleration
from backendai.agent.backends.shared.packet_rules import shielded_addresses
from backendai.agent.backends.shared.terminals import FIND, MARK, shell_command, tmux_name
from backendai.agent.mounts.hosts import StorageHosts
from backendai.agent.mounts.kernel_mounts import KernelMounts
from backendai.agent.settings.qemu import QemuSettings
from backendai.base.process.packages import install_command
from backendai.base.wire.capabilities import Capability
from backendai.base.wire.images import RegistryAccess
from backendai.base.wire.messages import ImageSighting, KernelSighting, KernelSpec, Note

logger = logging.getLogger(__name__)

_READING_SECONDS = 5.0


class QemuBackend(SupervisedBackend):
    """Gets images from this machine's Docker Engine, if there is one, else from registries."""

    name = "qemu"
    _starter: QemuStarter
    capabilities = frozenset(
        {
            Capability.IMAGES,
            Capability.LISTED_IMAGES,
            Capability.APPS,
            Capability.SERVING,
            Capability.OWN_NETWORK,
            Capability.CLUSTER_FILES,
            Capability.SIZE_LIMITS,
            Capability.EXECUTION,
        }
    )

    def __init__(
        self,
        data: Path,
        settings: QemuSettings | None = None,
        *,
        deployment: str,
        agent: str,
        docker_url: str | None = None,
        hosts: StorageHosts | None = None,
        network: QemuNetwork | None = None,
    ) -> None:
        self.settings = settings or QemuSettings()
        self.network = network or QemuNetwork(self.settings.network, shielded_addresses())
        cache = self.settings.cache or data.absolute() / "machines"
        self._data, self._cache = data, cache
        self._engine = Engine(docker_url, deployment, agent)
        tools = QemuTools(self.settings.root)
        self._images = QemuImages(self._engine, tools, cache)
        self._starter = QemuStarter(
            self.settings,
            cache,
            data.absolute(),
            self._images,
            KernelMounts(data, hosts),
            self.network,
            lambda: self.acceleration.find().acceleration,
            deployment=deployment,
            clear=self._clear,
        )
        self.acceleration = Acceleration(self.settings.acceleration, tools, self._starter.boot.files)
        super().__init__(self._starter, deployment=deployment, agent=agent)
        self.services = QemuServices(self._running, self.slowness)
        self.guests = QemuGuests(self._running, self._find, self.slowness)

    def setup(self) -> None:
        """Set the network rules; prepare the boot files and test the acceleration in a thread. The first start then
        need not wait for them."""
        self._look_at_network()

        def prepare() -> None:
            try:
                found = self.acceleration.find()
                self._starter.boot.files()
                logger.info("virtual machines run with %s %s", found.acceleration, found.why_not)
            except BackendError as error:
                logger.warning("no virtual machine can start: %s", error.message)

        threading.Thread(target=prepare, name="qemu-trial", daemon=True).start()

    def engine(self) -> str:
        known = self.acceleration.known
        return f"QEMU ({known.acceleration})" if known else "QEMU"

    def slowness(self) -> int:
        """Return the factor of deadlines. Until the test has ended, it is that of emulation."""
        return slowness(known.acceleration if (known := self.acceleration.known) else TCG)

    def storage(self) -> list[Path]:
        return [self._data, self._cache]

    def home_folder(self, kernel_id: UUID) -> Path | None:
        return None  # the home is on a disk that only the guest reads

    def cut_folder(self, kernel_id: UUID, folder_id: UUID) -> int:
        folder = self._running(kernel_id)
        spec, targets = folder.spec(), folder.read("launch").get("targets", {})
        places = {mount.target for mount in spec.mounts if mount.folder_id == folder_id} if spec else set()
        tags = [tag for tag, target in targets.items() if target in places]
        if not tags:
            raise BackendError("No program of this session sees the folder.", code="folder-not-mounted")
        return sum(int(ask(folder.path, {"cut": tag}).get("killed") or 0) for tag in tags)

    def notes(self) -> list[Note]:
        fault, fix = self._fault()
        return list(
            describe(
                self.acceleration.known,
                fault,
                fix,
                overhead=self.settings.overhead,
                has_limits=bool(self._starter.cgroups),
                is_root=self._starter.is_root,
                storage=self._rules().fault,
                no_network=self.network.why_not,
                hidden=self._hidden(),
            )
        )

    def fault(self) -> str:
        return self._fault()[0]

    def images(self) -> list[ImageSighting]:
        return self._images.sightings()

    def has_image(self, reference: str) -> bool:
        return self._images.has(reference)

    def pull(self, reference: str, *, timeout: float, progress: Progress, access: RegistryAccess = NOBODY) -> None:
        self._images.pull(reference, timeout=timeout, progress=progress, access=access)

    def start(self, spec: KernelSpec) -> Started:
        self._check_cluster(spec)
        if not self.has_image(spec.exact_image):
            raise ImageNotFound("{image} is neither here nor was it pulled.", image=spec.image)
        return super().start(spec)

    def readings(self, kernels: Sequence[KernelSighting]) -> dict[UUID, KernelReading]:
        found = {}
        for kernel in kernels:
            folder = self._find(kernel.kernel_id)
            if folder is not None and folder.running():
                with contextlib.suppress(BackendError):
                    found[kernel.kernel_id] = _reading(folder, ask(folder.path, {}))
        return found

    def sweep(self, live: set[UUID]) -> None:
        super().sweep(live)
        self._look_at_network()  # a restart of the machine's firewall may have deleted our rules
        self._images.sweep()
        self._starter.sweep()

    async def open_terminal(self, kernel_id: UUID, *, name: str, rows: int, cols: int) -> Terminal:
        folder = await asyncio.to_thread(self._running, kernel_id)
        words = program_words(shell_command(name), {"TERM": "xterm-256color", MARK: os.urandom(4).hex()})

        def find(does: str, text: str) -> Sequence[str]:
            return program_words([SH, "-c", FIND, "find", tmux_name(name), does, text], {})

        return await open_terminal(folder.path, words, find=find, rows=rows, cols=cols)

    def close(self) -> None:
        self._closed.set()
        self._mounts.hosts.stop()
        self._starter.reap()
        self._engine.close()

    def _check_cluster(self, spec: KernelSpec) -> None:
        if spec.network is not None:
            text = "Virtual machines reach no kernels of other agents: the session has to lie on this agent as a whole."
            raise StartFailed(text, code="cluster-network-failed")
        if spec.cluster_size > (most := GuestAddresses(self.settings.guests).most_kernels):
            text = "A session of virtual machines has {most} kernels at most."
            raise StartFailed(text, code="cluster-network-failed", most=most)

    def _look_at_network(self) -> None:
        isolated = set() if self.network.ensure() else {Capability.ISOLATED}
        self.capabilities = type(self).capabilities | isolated

    def _hidden(self) -> str:
        """Return a message about machines that guests cannot reach, as guests use their addresses inside; empty:
        none."""
        guests = self.settings.guests
        devices = ", ".join(devices_into(guests))
        return devices and f"Virtual machines do not reach {guests} behind {devices}: they have these addresses inside."

    def _fault(self) -> tuple[str, str]:
        """Return why no virtual machine can start, and advice."""
        if missing := self._starter.tools.missing():
            text = f"Virtual machines cannot start: {', '.join(missing)} is not installed."
            return text, install_command(*missing, lean=True)
        try:
            newest_kernel(self.settings.root)
        except BackendError as error:
            return error.message, install_command(KERNEL, lean=True)
        return "", ""


def _reading(folder: KernelFolder, told: dict[str, float]) -> KernelReading:
    """Return the measurement of a virtual machine. Its memory use comes from the guest, as QEMU never returns memory to
    the machine."""
    return KernelReading(
        run=folder.container_id(),
        cpu_seconds=told.get("cpu_seconds"),
        mem_bytes=int(told["used"]) if "used" in told else None,
        io_read=int(told["io_read"]) if "io_read" in told else None,
        io_write=int(told["io_write"]) if "io_write" in told else None,
        memory_kills=int(told["oom"]) if "oom" in told else None,
    )
