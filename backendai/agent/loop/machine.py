"""The agent's description of its machine for the sync: capacity, images, and notes for administrators."""

from __future__ import annotations

import hashlib
import logging
import os
import platform
import shutil
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from uuid import UUID, uuid4

import psutil

from backendai.agent.accelerators.inventory import Accelerators
from backendai.agent.accelerators.offer import Offer, is_accelerator
from backendai.agent.backends.abilities import Imaging, Mounting, capabilities_with
from backendai.agent.backends.base import Backend, BackendError
from backendai.agent.jobs.kinds import handlers_for
from backendai.agent.loop.usage import UsageSampler
from backendai.base.core.slots import Slots, format_size
from backendai.base.core.version import VERSION
from backendai.base.process.slowness import allowed
from backendai.base.wire.fields import MOST_IMAGES, MOST_KERNELS, MOST_NOTES, MOST_WIDEST
from backendai.base.wire.live import LiveSample
from backendai.base.wire.messages import ImageSighting, KernelSighting, Note, SyncUp
from backendai.base.wire.mounts import MOST_HOSTS, HostReport
from backendai.base.wire.node_jobs import CAPABILITY


def capabilities_of(backend: Backend) -> set[str]:
    """Return the capabilities of an agent with this backend, including the kinds of jobs it handles."""
    jobs = (f"{CAPABILITY}{handler.kind}" for handler in handlers_for(backend))
    return {*capabilities_with(backend), *jobs}


_SHORTEST = 0.5  # least interval, in seconds summed over all processors


class Load:
    """Measures the machine. Processor use covers the time since the previous call. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._before = _cpu_seconds()
        self._percent: float | None = None

    def sample(self) -> LiveSample:
        """Return the machine's use of processors and memory, without devices."""
        memory = psutil.virtual_memory()
        return LiveSample(
            cpu_pct=self._cpu_percent(),
            load=round(os.getloadavg()[0], 2),
            mem_used=memory.total - memory.available,
            mem_total=memory.total,
        )

    def _cpu_percent(self) -> float | None:
        with self._lock:
            now = _cpu_seconds()
            busy, passed = now[0] - self._before[0], now[1] - self._before[1]
            if passed >= _SHORTEST:
                self._before, self._percent = now, 100.0 * busy / passed
            return self._percent


def _cpu_seconds() -> tuple[float, float]:
    """Return the processors' busy seconds and total seconds since the machine started."""
    times = psutil.cpu_times()
    idle = times.idle + getattr(times, "iowait", 0.0)
    # user time includes guest time
    total = sum(times) - getattr(times, "guest", 0.0) - getattr(times, "guest_nice", 0.0)
    return total - idle, total


LOW = "disk-low"


@dataclass(frozen=True, slots=True)
class Disk:
    """A file system: a folder on it, and its free and total bytes."""

    folder: Path
    free: int
    total: int

    def is_below(self, reserve: float) -> bool:
        """Return whether less than this share (percent) is free."""
        return 100 * self.free < reserve * self.total


def tightest(folders: Iterable[Path]) -> Disk | None:
    """Return the file system with the smallest free share among those of these folders; None if no folder exists."""
    found = [disk for folder in folders if (disk := _look_at(folder)) is not None]
    return min(found, key=lambda disk: disk.free / disk.total, default=None)


def note_of(disk: Disk, reserve: float) -> Note:
    """Return the note for administrators about a disk whose free space is below the reserve."""
    return Note(
        code=LOW,
        message=f"{format_size(disk.free)} of {format_size(disk.total)} are free at {disk.folder}, less than the "
        f"reserve of {reserve:g} %: only sessions whose image is here start.",
        fix="Remove images and containers that nobody needs (docker system prune), or give the machine more disk.",
    )


def _look_at(folder: Path) -> Disk | None:
    try:
        usage = shutil.disk_usage(folder)
    except OSError:
        return None
    return Disk(folder, usage.free, usage.total) if usage.total else None


logger = logging.getLogger(__name__)

_REFRESH_SECONDS = 30.0
_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


def boot_id() -> str:
    """Return the id of the Linux kernel's current boot, equal in all containers; empty on other systems."""
    return _BOOT_ID.read_text().strip() if _BOOT_ID.exists() else ""


class Machine:
    """Gathers the slowly changing part of a sync, every 30 s, or at the next sync after ``images_changed``."""

    def __init__(
        self,
        backend: Backend,
        accelerators: Accelerators | None = None,
        *,
        offered: Callable[[Slots], Slots],
        gateway_url: str,
        disk_reserve: float = 0.0,
        sampler: UsageSampler | None = None,
        working: Callable[[], set[UUID]] = set,
    ) -> None:
        self._capabilities = sorted(capabilities_of(backend))
        self._accelerators = accelerators or Accelerators()
        self._backend, self._offered, self._gateway_url = backend, offered, gateway_url
        self._disk_reserve, self._engine, self._folders = disk_reserve, "", list[Path]()
        self._boot_id = boot_id() or uuid4().hex
        self._capacity, self._notes, self._fault = Slots(), list[Note](), ""
        self._images, self._digest = list[ImageSighting](), ""
        self._architecture, self._widest = platform.machine(), list[Slots]()
        self._read_at = -_REFRESH_SECONDS
        self._told_digest: str | None = None
        self._working = working
        self._load, self._sampler = Load(), sampler or UsageSampler(backend, self._accelerators, interval=0.0)

    def images_changed(self) -> None:
        """Refresh everything before the next sync."""
        self._read_at = -_REFRESH_SECONDS

    def describe(self, kernels: list[KernelSighting], *, engine_fault: str, draining: bool, wait: float) -> SyncUp:
        """Return the next message to the portal. It contains the images only if they changed since the portal received
        them."""
        if not engine_fault:
            engine_fault = self._refresh()
        self._sampler.saw(kernels)
        offer = self._accelerators.offer(kernels)
        notes, disk = [*self._notes, *offer.notes], tightest(self._folders)
        is_low = disk is not None and disk.is_below(self._disk_reserve)
        if disk is not None and is_low:
            notes.append(note_of(disk, self._disk_reserve))
        if engine_fault:
            notes.append(Note(code="engine-unreachable", message=engine_fault, fix="See to the container engine."))
        return SyncUp(
            boot_id=self._boot_id,
            version=VERSION,
            backend=self._backend.name,
            architecture=self._architecture,
            gateway_url=self._gateway_url,
            capacity=self._whole_capacity(offer).to_json(),
            devices=dict(offer.devices),
            # The images are unknown while the engine is down, so they are not sent.
            images=None if engine_fault or self._told_digest == self._digest else self._images,
            images_digest=self._digest,
            kernels=kernels,
            notes=notes[:MOST_NOTES],
            live=self._sample(offer, disk),
            usage=self._sampler.report(),
            working=sorted(self._working())[:MOST_KERNELS],
            engine=self._engine,
            os_kernel=platform.release() if self._backend.is_here else "",
            widest=[one.to_json() for one in self._widest],
            slowness=self._slowness(),
            low_disk=is_low,
            fault=self._fault,
            draining=draining or bool(engine_fault),
            storage_hosts=self._storage_hosts(),
            capabilities=self._capabilities,
            wait=wait,
        )

    def told(self, up: SyncUp, *, want_images: bool) -> None:
        """Record that the portal received this message, and whether it requests the images again."""
        self._sampler.told(up.usage)
        if up.images is not None:
            self._told_digest = up.images_digest
        if want_images and up.images is None:
            self._told_digest = None

    def _slowness(self) -> int:
        """Return the factor of starts: that of the backend, and that of this machine if kernels run on it."""
        own = self._backend.slowness()
        return round(allowed(1.0, own=own)) if self._backend.is_here else own

    def _storage_hosts(self) -> list[HostReport]:
        return self._backend.storage_hosts()[:MOST_HOSTS] if isinstance(self._backend, Mounting) else []

    def _sample(self, offer: Offer, disk: Disk | None) -> LiveSample:
        more: dict[str, object] = {"devices": dict(offer.samples)}
        if disk is not None:
            more |= {"disk_free": disk.free, "disk_total": disk.total}
        sample = self._load.sample() if self._backend.is_here else self._backend.sample()
        return sample.model_copy(update=more)

    def _whole_capacity(self, offer: Offer) -> Slots:
        """Return the capacity including accelerators; empty until the engine has reported the rest."""
        if not self._capacity:
            return self._capacity
        rest = {slot: amount for slot, amount in self._capacity.items() if not is_accelerator(slot)}
        return Slots(rest | dict(offer.capacity))

    def _refresh(self) -> str:
        if time.monotonic() - self._read_at < _REFRESH_SECONDS:
            return ""
        try:
            capacity, notes = self._backend.capacity(), self._backend.notes()
            self._architecture, self._widest = self._backend.architecture(), self._backend.widest()[:MOST_WIDEST]
            images = self._backend.images() if isinstance(self._backend, Imaging) else []
            self._engine, self._folders, fault = self._backend.engine(), self._backend.storage(), self._backend.fault()
        except BackendError as error:
            logger.warning("the engine does not answer: %s", error.message)
            return error.message
        if len(images) > MOST_IMAGES:
            logger.warning("%s images are here: the portal is told of %s", len(images), MOST_IMAGES)
            images = images[:MOST_IMAGES]
        if fault and fault != self._fault:
            logger.error("no session can start here: %s", fault)
        self._capacity, self._notes, self._images, self._fault = self._offered(capacity), notes, images, fault
        text = "\n".join(sorted(f"{image.reference} {image.digest}" for image in images))
        self._digest = hashlib.sha256(text.encode()).hexdigest()[:16]
        self._read_at = time.monotonic()
        return ""
