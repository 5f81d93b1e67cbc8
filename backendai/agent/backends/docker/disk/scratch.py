"""Scratch folders of kernels: a file system of fixed size in a sparse file if possible, else a plain folder.

Each contains ``home`` and ``tmp``, so that all writes of a kernel to the disk count against one limit.
"""

from __future__ import annotations

import errno
import os
import shutil
import socket
import stat
import struct
import subprocess
import threading
import time
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from uuid import UUID

from backendai.agent.backends.base import LimitExceeded
from backendai.agent.backends.shared.authorities import write_authorities
from backendai.agent.backends.shared.cluster_files import ClusterAccess
from backendai.agent.backends.shared.home import fill_home
from backendai.agent.backends.shared.kit import Kit
from backendai.agent.backends.shared.trees import bytes_under, ids_in, remove_tree
from backendai.agent.mounts.homes import unpack_home
from backendai.agent.mounts.hosts import StorageHosts
from backendai.base.core.slots import format_size
from backendai.base.wire.messages import KernelSpec
from backendai.base.wire.usage import HomeLook

MOST_ENTRIES = 100_000
MOST_SECONDS = 1.5
_DEEPEST = 40  # the largest depth, which is the number of open descriptors
_BLOCK = 512
# Linux knows which parts of an inode table were never used. Zeroing them in the background would take
# 7 ms of processor time for each home folder of 10 GiB.
_OPTIONS = "loop,nosuid,nodev,noatime,noinit_itable"
_PACKAGES = (".local", "lib")
_LEFT_OUT = (".cache",)  # caches are not worth keeping


def look_at_home(home: Path, *, seconds: float = MOST_SECONDS, entries: int = MOST_ENTRIES) -> HomeLook:
    """Return the folder's use. ``complete`` is False if the time or the number of entries was exceeded, or a part was
    unreadable. Raises OSError if the folder is missing."""
    home.stat()
    end, left = time.monotonic() + seconds, entries
    sizes = {True: 0, False: 0}
    packages, complete = 0, True

    def unreadable(_error: OSError) -> None:
        nonlocal complete
        complete = False

    for root, folders, files, descriptor in os.fwalk(home, onerror=unreadable):
        parts = Path(root).relative_to(home).parts
        left -= len(folders) + len(files)
        if left < 0 or time.monotonic() > end:
            complete = False
            break
        if not parts:
            folders[:] = [name for name in folders if name not in _LEFT_OUT]
        if len(parts) >= _DEEPEST and folders:
            folders.clear()
            complete = False
        is_of_pip = parts[: len(_PACKAGES)] == _PACKAGES
        packages += sum(is_of_pip and name.endswith(".dist-info") for name in folders)
        sizes[is_of_pip] += sum(_bytes_of(name, descriptor) for name in files)
    return HomeLook(home_bytes=sizes[False], pip_bytes=sizes[True], packages=packages, complete=complete)


def _bytes_of(name: str, folder: int) -> int:
    try:
        found = os.stat(name, dir_fd=folder, follow_symlinks=False)
    except OSError:  # deleted meanwhile
        return 0
    return found.st_blocks * _BLOCK if stat.S_ISREG(found.st_mode) else 0


OWNER = 1000
_SMALLEST = 4 * 2**20  # the smallest possible ext4
HOME, TEMPORARY = "home", "tmp"
_DRAFT = ".home.new"
_GUEST = ".guest"
Fill = Callable[[Path], None]
_NEEDED = ("mkfs.ext4", "mount", "umount")


class Scratch:
    """Scratch folders below ``root``: ``<kernel id>``, with ``.img`` (limited by a loop device) or ``.limit``
    (measured).

    ``.stopped`` marks a kernel that was stopped on order. ``kit``: mounted beside them.
    """

    def __init__(self, root: Path, engine_socket: str | None) -> None:
        self.root, self.kit = root, Kit(root.parent / "kit")
        self._engine_socket = engine_socket
        self._loops: bool | None = None
        self._making_blank = threading.Lock()

    @property
    def is_limited(self) -> bool:
        """Whether the file system itself limits scratch folders."""
        if self._loops is None:
            self._loops = _can_mount_loops() and shares_mounts_with(self._engine_socket)
        return self._loops

    def prepare(self, kernel_id: UUID, limit: int, fill: Fill | None = None) -> Path:
        """Return the kernel's folder; creates it if needed. ``limit``: bytes; 0: none. ``fill`` fills a new home."""
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
        """Return the folder with the kernel's certificate authorities; creates it. None if it has none."""
        if not spec.authorities:
            return None
        folder = self._path(spec.kernel_id, ".ca")
        write_authorities(folder, spec)
        return folder

    def guest(self, kernel_id: UUID) -> Path:
        """Return the folder with the guest agent's program and socket."""
        return self._path(kernel_id, _GUEST)

    def prepare_guest(self, kernel_id: UUID) -> Path:
        """Return the folder with the guest agent's program and socket; creates it if needed."""
        folder = self.guest(kernel_id)
        folder.mkdir(exist_ok=True)
        folder.chmod(0o755)
        return folder

    def remove(self, kernel_id: UUID) -> None:
        """Unmount and delete all files of a kernel. Does nothing if they are gone."""
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
        """Delete the folders of kernels that are not in ``live``."""
        for kernel_id in ids_in(self.root) - live:
            self.remove(kernel_id)

    def over_limit(self) -> list[tuple[UUID, int, int]]:
        """Return kernel, bytes and limit of each plain folder above its limit."""
        marks = [(UUID(mark.stem), mark.with_suffix(""), int(mark.read_text())) for mark in self.root.glob("*.limit")]
        sizes = [(kernel_id, bytes_under(folder), limit) for kernel_id, folder, limit in marks]
        return sorted(size for size in sizes if size[1] > size[2])

    def overfull(self) -> list[LimitExceeded]:
        """Return the kernels whose plain folder is above its limit."""
        return [
            LimitExceeded(kernel_id, f"Its home folder holds {format_size(size)}; it may hold {format_size(limit)}.")
            for kernel_id, size, limit in self.over_limit()
        ]

    def promised(self, limits: Mapping[UUID, int], disk: Path) -> int:
        """Return the bytes that these kernels may still write to their folders; 0 if the folders are not on ``disk``.
        Counts plain folders in full, as measuring them takes long."""
        try:
            if self.root.stat().st_dev != disk.stat().st_dev:
                return 0
        except OSError:
            return 0
        return sum(max(0, limit - _blocks_of(self._path(kernel_id, ".img"))) for kernel_id, limit in limits.items())

    def home(self, kernel_id: UUID) -> Path:
        """Return the path of the kernel's home folder."""
        return self._path(kernel_id) / HOME

    def look(self, kernel_id: UUID) -> HomeLook | None:
        """Return the use of the kernel's home folder, and of its file system if it has its own; None if it is gone."""
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
        """Record, also for later agents, that the kernel was stopped on order."""
        self.root.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._path(kernel_id, ".stopped").touch()

    def was_stopped(self, kernel_id: UUID) -> bool:
        """Return whether the kernel was stopped on order."""
        return self._path(kernel_id, ".stopped").exists()

    def _path(self, kernel_id: UUID, suffix: str = "") -> Path:
        return self.root / f"{kernel_id}{suffix}"

    def _mount(self, folder: Path, image: Path, limit: int) -> bool:
        """Mount a file system of this size; returns False if no loop device is free."""
        if not image.exists():  # the image still exists after a restart of the machine
            self._make_file_system(image, limit)
        folder.mkdir(exist_ok=True)
        if not _run(["mount", "-o", _OPTIONS, str(image), str(folder)]):
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
        """Return an empty file system of this size as a template: copying it takes 1 ms, creating one 40 ms."""
        blank = self.root / f"blank-{limit}.ext4"
        with self._making_blank:
            if not blank.exists():
                new = blank.with_suffix(".new")
                with new.open("wb") as sparse:
                    sparse.truncate(limit)
                options = f"lazy_itable_init=1,nodiscard,root_owner={OWNER}:{OWNER}"
                # no journal, as a scratch folder ends with its kernel; no room to grow, which saves 4 MB per copy
                features = "^has_journal,^resize_inode"
                if not _run(["mkfs.ext4", "-q", "-F", "-m", "0", "-O", features, "-E", options, str(new)]):
                    raise OSError(errno.EIO, f"mkfs.ext4 fails for {format_size(limit)}")
                new.rename(blank)
        return blank


def fill_for(spec: KernelSpec, access: ClusterAccess, hosts: StorageHosts) -> Fill:
    """Return a function that writes the spec's files into a new home, as the kernel's user if possible, after those of
    its stored home."""
    owner = OWNER if os.geteuid() == 0 else None

    def fill(home: Path) -> None:
        unpack = partial(unpack_home, hosts, spec, owner=owner, limit=spec.scratch_bytes)
        fill_home(home, spec, owner=owner, open_to_all=owner is None, access=access, unpack=unpack)

    return fill


def furnish(folder: Path, fill: Fill | None = None) -> Path:
    """Create ``home`` (atomically) and ``tmp`` in the folder if they do not exist; returns the folder."""
    home, temporary = folder / HOME, folder / TEMPORARY
    if not home.exists():
        draft = folder / _DRAFT
        if os.path.lexists(draft):  # left by an interrupted start
            remove_tree(draft)
        draft.mkdir()
        if fill is not None:
            fill(draft)
        if os.geteuid() == 0:
            os.chown(draft, OWNER, OWNER)
        else:
            draft.chmod(0o777)  # safe, as only the agent's user can enter the parent folder
        draft.rename(home)
    if not temporary.exists():
        temporary.mkdir()
        temporary.chmod(0o1777)
    return folder


def _can_mount_loops() -> bool:
    return os.geteuid() == 0 and Path("/dev/loop-control").exists() and all(map(shutil.which, _NEEDED))


def shares_mounts_with(engine_socket: str | None) -> bool:
    """Return whether the engine sees this process's mounts: both need the same mount namespace."""
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
    """Copy a file, preserving its holes."""
    with source.open("rb") as old, target.open("wb") as new:
        size = os.fstat(old.fileno()).st_size
        new.truncate(size)
        position = 0
        while position < size:
            try:
                position = os.lseek(old.fileno(), position, os.SEEK_DATA)
            except OSError as error:
                if error.errno == errno.ENXIO:  # the rest of the file is a hole
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
