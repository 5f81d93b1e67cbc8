"""Starts virtual machines, and waits for the guest's first message."""

from __future__ import annotations

import logging
import math
import os
import subprocess
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from backendai.agent.backends.base import StartFailed
from backendai.agent.backends.native.folder import KernelFolder
from backendai.agent.backends.native.places import KernelPlaces
from backendai.agent.backends.native.supervisors import SupervisedStarter
from backendai.agent.backends.qemu.boot import Boot
from backendai.agent.backends.qemu.command import TCG, GuestShape, command_of
from backendai.agent.backends.qemu.disk import FolderShare, make_disk, size_words
from backendai.agent.backends.qemu.images import QemuImages
from backendai.agent.backends.qemu.networks.addresses import GuestAddresses
from backendai.agent.backends.qemu.networks.network import QemuNetwork
from backendai.agent.backends.qemu.tools import QemuTools, ToolMissing
from backendai.agent.backends.shared.kit import Kit
from backendai.agent.backends.shared.trees import remove_tree
from backendai.agent.mounts.hosts import KERNEL_USER, MountRules
from backendai.agent.mounts.kernel_mounts import Binds, KernelMounts
from backendai.agent.settings.qemu import QemuSettings
from backendai.base.core.slots import MILLI, Slots, format_size
from backendai.base.paths.installation import IMPORTED_FROM
from backendai.base.wire.messages import KernelSpec

logger = logging.getLogger(__name__)

_OPTIONS = ("-comp", "lz4", "-all-root", "-noappend", "-no-progress", "-quiet")
_SECONDS = 120.0


class QemuKit:
    """The kit of one agent, below ``folder``."""

    def __init__(self, tools: QemuTools, folder: Path) -> None:
        self._tools, self._folder, self._making = tools, folder, threading.Lock()
        self._kit = Kit(folder / "files")

    def file(self) -> Path | None:
        """Return the kit's file system; creates it if needed (2 s). None after a failure, which is logged."""
        with self._making:
            if not self._kit.ensure():
                return None
            made = self._folder / f"{(self._kit.folder / 'current').readlink()}.squashfs"
            if not made.exists():
                try:
                    self._make(made)
                except (OSError, subprocess.SubprocessError, ToolMissing) as error:
                    logger.warning("the kit for images without Python cannot be made: %s", error)
                    return None
            return made

    def _make(self, made: Path) -> None:
        for left in self._folder.glob("*.squashfs"):  # an earlier version; running virtual machines keep it open
            left.unlink()
        draft = made.with_suffix(".draft")
        command = [self._tools.need("mksquashfs"), str(self._kit.folder), str(draft), *_OPTIONS]
        subprocess.run(command, check=True, capture_output=True, timeout=_SECONDS, env=self._tools.environ())
        draft.replace(made)


_RUN = (
    "import sys; sys.path.insert(0, sys.argv[1]); from backendai.agent.backends.qemu.runner import main; "
    "main(sys.argv[2:])"
)
_EMULATION = 4  # the factor of all deadlines without KVM
_LEAST_GUEST = 96 * 2**20  # Linux needs this much to unpack the initial RAM disk
_COMPLAINT = 300  # letters
_TELLING = ("Kernel panic", "init: ", "qemu-system")  # beginnings of console lines that give the reason
_THREADS = 256  # QEMU's threads: one per core, and those of its disks


class QemuStarter(SupervisedStarter):
    """Starts virtual machines. ``data``: the agent's folder. ``acceleration`` returns the result of the test."""

    def __init__(
        self,
        settings: QemuSettings,
        cache: Path,
        data: Path,
        images: QemuImages,
        mounts: KernelMounts,
        network: QemuNetwork,
        acceleration: Callable[[], str],
        *,
        deployment: str,
        clear: Callable[[KernelFolder], None],
    ) -> None:
        super().__init__(
            KernelPlaces(data), mounts, ["-c", _RUN, str(IMPORTED_FROM)], deployment=deployment, clear=clear
        )
        self._settings, self._images, self._network, self._acceleration = settings, images, network, acceleration
        self.tools = QemuTools(settings.root)
        self.boot = Boot(settings.root, cache)
        self._kit, self._sessions = QemuKit(self.tools, data / "kit"), data / "sessions"
        self._addresses = GuestAddresses(settings.guests)
        self.is_root = os.geteuid() == 0

    def mount_rules(self) -> MountRules:
        """Return the mount rules: the folders' servers need root, and give files to the folder's owner."""
        if not self.is_root:
            return MountRules(fault="Virtual machines mount no folders here: the agent does not run as root.")
        if self.tools.find("virtiofsd") is None:
            return MountRules(fault="Virtual machines mount no folders here: install qemu-system-common.")
        return MountRules(uids=frozenset({KERNEL_USER}), attaches=True)

    def _prepare(self, spec: KernelSpec, folder: KernelFolder) -> None:
        image = self._images.make(spec.exact_image)
        boot, kit = self.boot.files(), self._kit.file()
        binds = self.mounts.prepare(spec, self.mount_rules())
        self._check(spec, binds)
        shares = [FolderShare(f"folder{number}", bind) for number, bind in enumerate(binds.all)]
        has_network = self._network.ensure()
        shape = self._shape(spec, [share.tag for share in shares], has_kit=kit is not None, has_network=has_network)
        self._make_folder(spec, folder)
        (folder.path / "guest").mkdir(mode=0o711)
        disk = folder.path / "disk"
        make_disk(disk, spec, image.environ, self.tools, uid=binds.uid, shares=shares, shape=shape)
        files = {"image": image.file, "kernel": boot.kernel, "initrd": boot.initrd, **({"kit": kit} if kit else {})}
        files |= {"disk": disk, "disk_looked_at": disk}
        limits = self._limits(spec, pids=_THREADS)
        about = {"labels": image.labels, "definitions": image.about.get("definitions") or {}, "image": image.file.stem}
        with self._choosing:
            uid = self._free_user(folder.kernel_id) if self.is_root else None
            folder.write("launch", self._launch(spec, shape, uid) | limits | about | {
                "files": {name: str(path) for name, path in files.items()},
                "shares": {share.tag: share.bind.source for share in shares},
                "session": self._session(spec, shape),
                "targets": {share.tag: share.bind.target for share in shares},
                "virtiofsd": str(self.tools.find("virtiofsd") or ""),
            })  # fmt: skip

    def _session(self, spec: KernelSpec, shape: GuestShape) -> dict[str, Any] | None:
        """Return how the kernel's supervisor finds those of the session's other kernels; None for a single kernel."""
        if shape.rank is None:
            return None
        folder = self._sessions / str(spec.session_id)
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        return {"folder": str(folder), "rank": shape.rank, "size": spec.cluster_size}

    def sweep(self) -> None:
        """Delete the folders of sessions without kernels here."""
        with self._choosing:  # a start saves its spec before it takes the lock
            here = {str(spec.session_id) for folder in self.places.folders() if (spec := folder.spec())}
            for session in self._sessions.iterdir() if self._sessions.exists() else ():
                if session.name not in here:
                    remove_tree(session)

    def _check(self, spec: KernelSpec, binds: Binds) -> None:
        """Raise StartFailed for a read-only folder that this machine cannot mount read-only."""
        for bind in binds.all:
            if bind.read_only and not Path(bind.source).is_relative_to(self.mounts.root / str(spec.kernel_id)):
                text = "The folder at {target} cannot be mounted read-only on this agent: it needs Linux 5.12 or newer."
                raise StartFailed(text, target=bind.target, code="mount-refused")

    def _launch(self, spec: KernelSpec, shape: GuestShape, uid: int | None) -> dict[str, Any]:
        environ = self.tools.environ() | {"BACKENDAI_KERNEL_ID": str(spec.kernel_id)}  # identifies stray processes
        return {
            "argv": command_of(shape, self.tools),
            "environ_outside": environ,
            "uid": uid,
            "gid": self._network.group,
            "groups": [os.stat("/dev/kvm").st_gid] if shape.acceleration != TCG else [],  # noqa: PTH116 - a device
            "memory": shape.memory,
            "disk_words": size_words(spec),
            "runtime": None,
        }

    def _shape(self, spec: KernelSpec, shares: list[str], *, has_kit: bool, has_network: bool) -> GuestShape:
        """Return the guest's properties; QEMU's overhead is subtracted from its memory. Raises StartFailed."""
        slots, overhead = Slots.parse(spec.slots), self._settings.overhead
        memory = slots["mem"] // MILLI - overhead
        if memory < _LEAST_GUEST:
            text = "A virtual machine takes {taken} of each kernel's memory: ask for {least} or more."
            raise StartFailed(text, taken=format_size(overhead), least=format_size(overhead + _LEAST_GUEST))
        cores = max(1, min(math.ceil(slots["cpu"] / MILLI), os.cpu_count() or 1))
        ranks = {peer.hostname: peer.rank for peer in spec.peers} if spec.cluster_size > 1 else {}
        rank = ranks.get(spec.hostname)
        return GuestShape(memory, cores, self._acceleration(), shares, has_kit, has_network, rank, self._addresses)

    def _last_words(self, folder: KernelFolder) -> str:
        for name in ("console.log", "runner.log"):
            path = folder.path / name
            text = path.read_text(errors="replace").replace("\0", "") if path.exists() else ""
            if lines := text.strip().splitlines():
                telling = [line for line in lines if any(sign in line for sign in _TELLING)]
                return (telling or lines)[-1].strip()[-_COMPLAINT:]
        return ""


def slowness(acceleration: str) -> int:
    """Return the factor by which deadlines of a virtual machine are extended."""
    return _EMULATION if acceleration == TCG else 1
