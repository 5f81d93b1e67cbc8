"""Scratch folders of kernels: a file system of a fixed size in a sparse file where possible, else a plain folder.

Each holds ``home`` and ``tmp``: whatever a kernel can write to the disk counts against one limit.
"""

from __future__ import annotations

import errno
import os
import shutil
import socket
import struct
import subprocess
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from uuid import UUID

from backendai.agent.backends.authorities import write_authorities
from backendai.agent.backends.base import Overfull
from backendai.agent.backends.cluster_files import Access
from backendai.agent.backends.docker_loop import OPTION, mount_loop
from backendai.agent.backends.home import fill_home
from backendai.agent.backends.home_look import look_at_home
from backendai.agent.backends.trees import bytes_under, remove_tree
from backendai.agent.kit import Kit
from backendai.core.slots import format_size
from backendai.wire.home import HomeLook
from backendai.wire.messages import KernelSpec

OWNER = 1000
_SMALLEST = 4 * 2**20  # below this no ext4 fits
HOME, TEMPORARY = "home", "tmp"
_DRAFT = ".home.new"
_GUEST = ".guest"
Fill = Callable[[Path], None]
_NEEDED = ("mkfs.ext4", "mount", "umount")


class Scratch:
    """Scratch folders under ``root``: ``<kernel id>``, its ``.img`` when limited by a loop device, ``.limit`` when not.

    ``.stopped`` marks a kernel that was ended on order. ``kit`` is mounted beside them.
    """

    def __init__(self, root: Path, engine_socket: str | None) -> None:
        self.root, self.kit = root, Kit(root.parent / "kit")
        self._engine_socket = engine_socket
        self._loops: bool | None = None
        self._making_blank = threading.Lock()

    @property
    def is_limited(self) -> bool:
        """Whether a kernel that fills its scratch is stopped by the file system itself."""
        if self._loops is None:
            self._loops = _can_mount_loops() and shares_mounts_with(self._engine_socket)
        return self._loops

    def prepare(self, kernel_id: UUID, limit: int, fill: Fill | None = None) -> Path:
        """Return the kernel's folder, made if needed. ``limit`` is in bytes; 0: none. ``fill`` fills a new home."""
        folder, image = self._path(kernel_id), self._path(kernel_id, ".img")
        if folder.is_mount() or (folder.exists() and not image.exists()):
            return furnish(folder, fill)
        self.root.mkdir(parents=True, exist_ok=True, mode=0o700)
        if limit and self.is_limited and self._mount(folder, image, max(limit, _SMALLEST)):
            return furnish(folder, fill)
        folder.mkdir(exist_ok=True)
        if limit:
            self._path(kernel_id, ".limit").write_text(str(limit))
        return furnish(folder, fill)

    def prepare_authorities(self, spec: KernelSpec) -> Path | None:
        """Return the folder with the certificate authorities of the kernel's programs, made if it has any."""
        if not spec.authorities:
            return None
        folder = self._path(spec.kernel_id, ".ca")
        write_authorities(folder, spec)
        return folder

    def guest(self, kernel_id: UUID) -> Path:
        """Return the folder that the kernel's guest agent finds its program and its socket in."""
        return self._path(kernel_id, _GUEST)

    def prepare_guest(self, kernel_id: UUID) -> Path:
        """Return the same folder, made if needed."""
        folder = self.guest(kernel_id)
        folder.mkdir(exist_ok=True)
        folder.chmod(0o755)
        return folder

    def remove(self, kernel_id: UUID) -> None:
        """Unmount and remove everything of a kernel; gone already is success."""
        folder = self._path(kernel_id)
        while folder.is_mount():
            if subprocess.run(["umount", folder], capture_output=True).returncode:
                subprocess.run(["umount", "-l", folder], capture_output=True, check=True)
        remove_tree(folder)
        for suffix in (".ca", _GUEST):
            if (more := self._path(kernel_id, suffix)).exists():
                remove_tree(more)
        for suffix in (".img", ".new", ".limit", ".stopped"):
            self._path(kernel_id, suffix).unlink(missing_ok=True)

    def sweep(self, live: set[UUID]) -> None:
        """Remove what belongs to no kernel in ``live``."""
        for kernel_id in self._known() - live:
            self.remove(kernel_id)

    def over_limit(self) -> list[tuple[UUID, int, int]]:
        """Return kernel, bytes and limit of each plain folder that holds more than its limit."""
        marks = [(UUID(mark.stem), mark.with_suffix(""), int(mark.read_text())) for mark in self.root.glob("*.limit")]
        sizes = [(kernel_id, bytes_under(folder), limit) for kernel_id, folder, limit in marks]
        return sorted(size for size in sizes if size[1] > size[2])

    def overfull(self) -> list[Overfull]:
        """Return the kernels whose plain folder holds more than its limit."""
        return [
            Overfull(kernel_id, f"Its home folder holds {format_size(size)}; it may hold {format_size(limit)}.")
            for kernel_id, size, limit in self.over_limit()
        ]

    def promised(self, limits: Mapping[UUID, int], disk: Path) -> int:
        """Return the bytes that these kernels may still write to their folders; 0 when the folders are not on ``disk``.
        Plain folders count in full: measuring them takes long."""
        try:
            if self.root.stat().st_dev != disk.stat().st_dev:
                return 0
        except OSError:
            return 0
        return sum(max(0, limit - _blocks_of(self._path(kernel_id, ".img"))) for kernel_id, limit in limits.items())

    def home(self, kernel_id: UUID) -> Path:
        """Return where the kernel's home folder is."""
        return self._path(kernel_id) / HOME

    def look(self, kernel_id: UUID) -> HomeLook | None:
        """Return what the kernel's home folder holds, and how full its disk is if it has one of its own; None when it
        is gone."""
        folder = self._path(kernel_id)
        try:
            look = look_at_home(folder / HOME)
            if not folder.is_mount():
                return look
            disk = os.statvfs(folder)
        except OSError:
            return None
        used, limit = (disk.f_blocks - disk.f_bfree) * disk.f_frsize, disk.f_blocks * disk.f_frsize
        return look.model_copy(update={"disk_used": used, "disk_limit": limit})

    def mark_stopped(self, kernel_id: UUID) -> None:
        """Remember, also over a restart of the agent, that the kernel's end was ordered."""
        self.root.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._path(kernel_id, ".stopped").touch()

    def was_stopped(self, kernel_id: UUID) -> bool:
        """Return whether the kernel's end was ordered."""
        return self._path(kernel_id, ".stopped").exists()

    def _path(self, kernel_id: UUID, suffix: str = "") -> Path:
        return self.root / f"{kernel_id}{suffix}"

    def _known(self) -> set[UUID]:
        known = set()
        for path in self.root.iterdir() if self.root.is_dir() else ():
            try:
                known.add(UUID(path.name.partition(".")[0]))
            except ValueError:
                continue
        return known

    def _mount(self, folder: Path, image: Path, limit: int) -> bool:
        """Return whether a file system of this size is mounted; no loop device left is no reason not to start."""
        if not image.exists():  # it does after a restart of the machine
            self._make_file_system(image, limit)
        folder.mkdir(exist_ok=True)
        try:
            mount_loop(image, folder)
        except OSError:  # an old kernel, or no loop device left: mount(8) knows more ways, or says so too
            if not _run(["mount", "-o", f"loop,nosuid,nodev,noatime,{OPTION}", str(image), str(folder)]):
                image.unlink()
                return False
        if (folder / "lost+found").exists():
            (folder / "lost+found").rmdir()
        return True

    def _make_file_system(self, image: Path, limit: int) -> None:
        new = image.with_suffix(".new")
        _copy_sparse(self._blank(limit), new)
        new.rename(image)

    def _blank(self, limit: int) -> Path:
        """Return an empty file system of this size, kept for copying: that takes 1 ms, making one 40 ms."""
        blank = self.root / f"blank-{limit}.ext4"
        with self._making_blank:
            if not blank.exists():
                new = blank.with_suffix(".new")
                with new.open("wb") as sparse:
                    sparse.truncate(limit)
                options = f"lazy_itable_init=1,nodiscard,root_owner={OWNER}:{OWNER}"
                # no journal: a scratch folder never outlives its kernel; no room to grow: 4 MB less to copy
                features = "^has_journal,^resize_inode"
                if not _run(["mkfs.ext4", "-q", "-F", "-m", "0", "-O", features, "-E", options, str(new)]):
                    raise OSError(errno.EIO, f"mkfs.ext4 fails for {format_size(limit)}")
                new.rename(blank)
        return blank


def fill_for(spec: KernelSpec, access: Access) -> Fill:
    """Return what writes the spec's files into a new home, as the kernel's user where that can be."""
    root = os.geteuid() == 0
    return lambda home: fill_home(home, spec, owner=OWNER if root else None, open_to_all=not root, access=access)


def furnish(folder: Path, fill: Fill | None = None) -> Path:
    """Return the folder with what kernels mount from it; what is there already stays, and a home is whole."""
    home, temporary = folder / HOME, folder / TEMPORARY
    if not home.exists():
        draft = folder / _DRAFT
        if os.path.lexists(draft):  # of a start that was cut short
            remove_tree(draft)
        draft.mkdir()
        if fill is not None:
            fill(draft)
        if os.geteuid() == 0:
            os.chown(draft, OWNER, OWNER)
        else:
            draft.chmod(0o777)  # under a folder that only the agent's user can enter
        draft.rename(home)
    if not temporary.exists():
        temporary.mkdir()
        temporary.chmod(0o1777)
    return folder


def _can_mount_loops() -> bool:
    return os.geteuid() == 0 and Path("/dev/loop-control").exists() and all(map(shutil.which, _NEEDED))


def shares_mounts_with(engine_socket: str | None) -> bool:
    """Return whether the engine sees what this process mounts: both must live in one mount namespace."""
    if engine_socket is None:
        return False
    try:
        with socket.socket(socket.AF_UNIX) as probe:
            probe.connect(engine_socket)
            peer = probe.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
        pid = struct.unpack("3i", peer)[0]
        return Path(f"/proc/{pid}/ns/mnt").readlink() == Path("/proc/self/ns/mnt").readlink()
    except OSError:
        return False


def _copy_sparse(source: Path, target: Path) -> None:
    """Copy a file without filling its holes."""
    with source.open("rb") as old, target.open("wb") as new:
        size = os.fstat(old.fileno()).st_size
        new.truncate(size)
        position = 0
        while position < size:
            try:
                position = os.lseek(old.fileno(), position, os.SEEK_DATA)
            except OSError as error:
                if error.errno == errno.ENXIO:  # only a hole is left
                    return
                raise
            end = os.lseek(old.fileno(), position, os.SEEK_HOLE)
            new.seek(position)
            while position < end:
                position += os.sendfile(new.fileno(), old.fileno(), position, end - position)


def _blocks_of(image: Path) -> int:
    try:
        return image.stat().st_blocks * 512
    except OSError:
        return 0


def _run(command: list[str]) -> bool:
    return subprocess.run(command, capture_output=True, timeout=60).returncode == 0
