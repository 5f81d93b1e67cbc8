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
from collections.abc import Iterator, Sequence
from pathlib import Path
from uuid import UUID

import psutil

from backendai.agent.backends.base import (
    NOBODY,
    SH,
    BackendError,
    ImageNotFound,
    Progress,
    Started,
    StartFailed,
    Terminal,
)
from backendai.agent.backends.docker.create import WORKDIR
from backendai.agent.backends.docker.engine import Engine
from backendai.agent.backends.native.folder import KernelFolder
from backendai.agent.backends.native.supervised import SupervisedBackend
from backendai.agent.backends.qemu.boot import newest_kernel
from backendai.agent.backends.qemu.channel.ask import ask, open_terminal
from backendai.agent.backends.qemu.channel.frames import program_words
from backendai.agent.backends.qemu.command import TCG
from backendai.agent.backends.qemu.guest import MachineGuests
from backendai.agent.backends.qemu.images import MachineImages
from backendai.agent.backends.qemu.networks.addresses import GuestAddresses, devices_into
from backendai.agent.backends.qemu.networks.network import MachineNetwork
from backendai.agent.backends.qemu.notes import describe
from backendai.agent.backends.qemu.services import MachineServices
from backendai.agent.backends.qemu.start import QemuStarter, slowness
from backendai.agent.backends.qemu.tools import Tools
from backendai.agent.backends.qemu.trial import Acceleration
from backendai.agent.backends.readings import Reading
from backendai.agent.backends.shared.home import WAIT
from backendai.agent.backends.shared.packet_rules import shielded_addresses
from backendai.agent.backends.shared.terminal_scripts import MARK, OPEN, SETTINGS, tmux_name
from backendai.agent.backends.shared.tmux import FIND
from backendai.agent.mounts.hosts import StorageHosts
from backendai.agent.mounts.kernel_mounts import KernelMounts
from backendai.agent.mounts.mounting import MountingBackend
from backendai.agent.settings.qemu import MachineSettings
from backendai.base.core.slots import MILLI, Slots
from backendai.base.wire.capabilities import Capability
from backendai.base.wire.messages import ImageSighting, KernelSighting, KernelSpec, Note
from backendai.base.wire.pulls import RegistryAccess

logger = logging.getLogger(__name__)

_READING_SECONDS = 5.0


class OneFolder:
    """The folders of kernels in the agent's folder."""

    def __init__(self, data: Path) -> None:
        self.path = data.absolute() / "kernels"

    def find(self, kernel_id: UUID) -> Path:
        """Return the kernel's folder; the path for a new one if there is none."""
        return self.path / str(kernel_id)

    def for_new(self) -> Path:
        """Return the folder for new kernels; creates it if needed."""
        self.path.mkdir(mode=0o700, parents=True, exist_ok=True)
        return self.path

    def folders(self) -> Iterator[Path]:
        """Yield all entries."""
        with contextlib.suppress(FileNotFoundError):
            yield from list(self.path.iterdir())


class QemuBackend(SupervisedBackend, MountingBackend):
    """Gets images from this machine's Docker Engine, if there is one, else from registries."""

    name = "qemu"
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
        settings: MachineSettings | None = None,
        *,
        deployment: str,
        agent: str,
        docker_url: str | None = None,
        hosts: StorageHosts | None = None,
        network: MachineNetwork | None = None,
    ) -> None:
        self.settings = settings or MachineSettings()
        self.network = network or MachineNetwork(self.settings.network, shielded_addresses())
        cache = self.settings.cache or data.absolute() / "machines"
        places, mounts = OneFolder(data), KernelMounts(data, hosts)
        self._data, self._cache = data, cache
        self._engine = Engine(docker_url, deployment, agent)
        tools = Tools(self.settings.root)
        self._images = MachineImages(self._engine, tools, cache)
        self._starter = QemuStarter(
            self.settings,
            cache,
            data.absolute(),
            self._images,
            mounts,
            self.network,
            lambda: self.acceleration.find().acceleration,
            self._folders,
        )
        self.acceleration = Acceleration(self.settings.acceleration, tools, self._starter.boot.files)
        super().__init__(self._starter, places, mounts, deployment=deployment, agent=agent)
        self._rules = self._starter.mount_rules
        self.services = MachineServices(self._running, self.slowness)
        self.guests = MachineGuests(self._running, self._find, self.slowness)

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

    def capacity(self) -> Slots:
        cores = len(os.sched_getaffinity(0))
        return Slots({"cpu": cores * MILLI, "mem": psutil.virtual_memory().total * MILLI})

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

    def readings(self, kernels: Sequence[KernelSighting]) -> dict[UUID, Reading]:
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
        command = [SH, "-c", WAIT, "wait", WORKDIR, SH, "-c", OPEN, "open", tmux_name(name), WORKDIR, SETTINGS]
        words = program_words(command, {"TERM": "xterm-256color", MARK: os.urandom(4).hex()})

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
            return text, f"apt install --no-install-recommends {' '.join(missing)}"
        try:
            newest_kernel(self.settings.root)
        except BackendError as error:
            return error.message, "apt install --no-install-recommends linux-image-cloud-amd64"
        return "", ""


def _reading(folder: KernelFolder, told: dict[str, float]) -> Reading:
    """Return the measurement of a virtual machine. Its memory use comes from the guest, as QEMU never returns memory to
    the machine."""
    return Reading(
        run=folder.container_id(),
        cpu_seconds=told.get("cpu_seconds"),
        mem_bytes=int(told["used"]) if "used" in told else None,
        io_read=int(told["io_read"]) if "io_read" in told else None,
        io_write=int(told["io_write"]) if "io_write" in told else None,
        memory_kills=int(told["oom"]) if "oom" in told else None,
    )
