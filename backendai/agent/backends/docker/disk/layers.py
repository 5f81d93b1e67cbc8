"""Limits the writable layers of containers: files that kernels write outside of home and temporary folders.

Few engines can limit a layer. With all others the layers are measured, and a kernel above its limit is ended. A layer
has the same limit as the scratch folder, and is counted separately.
"""

from __future__ import annotations

import logging
import os
import shutil
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import UUID

from docker.errors import NotFound

from backendai.agent.backends.base import BackendError, LimitExceeded
from backendai.agent.backends.docker.engine import PREFIX, Engine
from backendai.agent.backends.shared.trees import bytes_under, files_under
from backendai.base.core.slots import format_size
from backendai.base.wire.messages import Note

logger = logging.getLogger(__name__)

LIMIT_LABEL = f"{PREFIX}scratch"
_BYTES_PER_FILE = 16 * 2**10  # the same ratio as in file systems of scratch folders
_PACE, _HURRIED_PACE = 60.0, 5.0  # seconds between measurements
_FAST_LOSS = 2 * 2**30  # a loss of this many free bytes triggers an early measurement
_NEARLY = 80  # percent
_ENGINE_SECONDS = 600.0  # to determine sizes, the engine walks through all layers
_MOUNTS = Path("/proc/self/mounts")


@dataclass(frozen=True, slots=True)
class WritableLayer:
    """A running kernel's layer. ``size`` and ``limit`` are bytes; ``files`` is 0 if they cannot be counted."""

    kernel_id: UUID
    size: int
    files: int
    limit: int

    @property
    def share(self) -> float:
        """The used percent of the limit, of bytes or of files, whichever is larger."""
        return max(100 * self.size / self.limit, 100 * self.files / self.most_files)

    @property
    def most_files(self) -> int:
        return max(1, self.limit // _BYTES_PER_FILE)

    def overfull(self) -> LimitExceeded:
        """Return the kernel's end with the exceeded number."""
        held, allowed = format_size(self.size), format_size(self.limit)
        if self.size <= self.limit:
            held, allowed = f"{self.files:,} files", f"{self.most_files:,}"
        message = f"It holds {held} outside of its home folder and temporary folders; the limit is {allowed}."
        return LimitExceeded(self.kernel_id, message, reason="layer-full")


class WritableLayers:
    """Measures the layers of running kernels, and calls ``homes``, in a thread.

    At most every 60 s, or every 5 s while less than half of ``reserve`` (percent of the disk at ``folder()``) is free
    or the disk fills fast.
    """

    def __init__(
        self,
        engine: Engine,
        *,
        folder: Callable[[], Path],
        reserve: float = 0.0,
        homes: Callable[[], list[LimitExceeded]] = list,
        homes_promised: Callable[[Mapping[UUID, int], Path], int] = lambda limits, disk: 0,
    ) -> None:
        self._engine, self._folder, self._reserve, self._homes = engine, folder, reserve, homes
        self._uppers: dict[str, Path | None] = {}
        self._measuring = threading.Lock()
        self._over, self._near = list[LimitExceeded](), list[WritableLayer]()
        self._homes_promised, self._promised = homes_promised, 0
        self._measured_at, self._took, self._free = -_PACE, 0.0, 0

    def overfull(self) -> list[LimitExceeded]:
        """Return the kernels above their limit, largest first, once per measurement. Starts the next measurement if it
        is due; never waits for it."""
        over, self._over = self._over, []
        if self._is_due() and self._measuring.acquire(blocking=False):
            threading.Thread(target=self._measure_and_release, name="layers", daemon=True).start()
        return over

    def notes(self) -> list[Note]:
        """Return notes about kernels close to their limit, and about limits that exceed the free space."""
        return [*self._near_notes(), *self._overcommit_notes()]

    def _overcommit_notes(self) -> Iterator[Note]:
        free, total = self._look_at_disk()
        if total and self._promised > free:
            yield Note(
                code="disk-overcommitted",
                message=f"The running kernels may still write {format_size(self._promised)} within their limits, but "
                f"only {format_size(free)} are free at {self._folder()}.",
                fix="Lower BACKENDAI_SCRATCH_BYTES, limit the kernels of this agent, or give the machine more disk.",
            )

    def _near_notes(self) -> Iterator[Note]:
        if self._near:
            largest = self._near[0]
            yield Note(
                code="layers-nearly-full",
                message=f"{len(self._near)} kernels hold more than {_NEARLY} % of what they may hold outside of their "
                f"home folders, the largest {format_size(largest.size)} (krn-{largest.kernel_id}). They end above it.",
                fix="Ask the owners of these sessions to move large files to the home folder or to delete them.",
            )

    def measure(self) -> list[WritableLayer]:
        """Return the layers of running kernels with a limit, largest first. Walks through each layer. Raises
        BackendError."""
        by_hand = self._engine.socket_path is not None and os.geteuid() == 0
        with self._engine.asking(seconds=_ENGINE_SECONDS):
            listed = [entry for entry in self._engine.listed(running=True) if _limit_of(entry)]
            uppers = {entry["Id"]: self._upper(entry["Id"]) for entry in listed} if by_hand else {}
            if not all(uppers.get(entry["Id"]) for entry in listed):  # the engine's sizes include holes of files
                listed = [entry for entry in self._engine.listed(running=True, sizes=True) if _limit_of(entry)]
        self._uppers = {identity: path for identity, path in self._uppers.items() if identity in uppers}
        found = [_layer(entry, uppers.get(entry["Id"])) for entry in listed]
        return sorted(found, key=lambda layer: layer.size, reverse=True)

    def _measure_and_release(self) -> None:
        started_at = time.monotonic()
        self._free = self._look_at_disk()[0]
        try:
            homes, layers = self._homes(), self.measure()
            self._over = homes + [layer.overfull() for layer in layers if layer.share > 100]
            limits = {layer.kernel_id: layer.limit for layer in layers}
            promised = sum(max(0, layer.limit - layer.size) for layer in layers)
            self._promised = promised + self._homes_promised(limits, self._folder())
            self._near = [layer for layer in layers if _NEARLY < layer.share <= 100]
        except BackendError as error:
            logger.warning("the writable layers of containers cannot be measured: %s", error.message)
        except Exception:
            logger.exception("the writable layers of containers cannot be measured")
        finally:
            self._measured_at = time.monotonic()
            self._took = self._measured_at - started_at
            self._measuring.release()

    def _is_due(self) -> bool:
        free, total = self._look_at_disk()
        is_tight = 200 * free < self._reserve * total
        hurry = is_tight or self._free - free > _FAST_LOSS
        # Limits measuring to a tenth of the time, or half of it in a hurry.
        pace = max(_HURRIED_PACE, self._took) if hurry else max(_PACE, 10 * self._took)
        return time.monotonic() - self._measured_at >= pace

    def _look_at_disk(self) -> tuple[int, int]:
        try:
            usage = shutil.disk_usage(self._folder())
        except OSError:
            return 0, 0
        return usage.free, usage.total

    def _upper(self, container_id: str) -> Path | None:
        """Return the path of the layer on this machine; None if it is not visible here."""
        if container_id not in self._uppers:
            try:
                data = self._engine.client.inspect_container(container_id)["GraphDriver"]["Data"] or {}
            except NotFound:
                data = {}
            path = Path(data["UpperDir"]) if data.get("UpperDir") else None
            self._uppers[container_id] = path if path is not None and path.is_dir() else None
        return self._uppers[container_id]


def can_size_layers(info: Mapping[str, Any]) -> bool:
    """Return whether this machine's engine can limit layers: overlay2 on xfs with project quotas."""
    backing = dict(pair for pair in info.get("DriverStatus") or [] if len(pair) == 2).get("Backing Filesystem")
    if info.get("Driver") != "overlay2" or backing != "xfs":
        return False
    root = Path(str(info.get("DockerRootDir", "")))
    mounts = [line.split() for line in _MOUNTS.read_text().splitlines()]
    holding = [(len(where), options) for _, where, _, options, *_ in mounts if root.is_relative_to(where)]
    return bool({"prjquota", "pquota"} & set(max(holding, default=(0, ""))[1].split(",")))


def _limit_of(entry: Mapping[str, Any]) -> int:
    limit = entry["Labels"].get(LIMIT_LABEL, "")
    return int(limit) if limit.isdigit() else 0


def _layer(entry: Mapping[str, Any], upper: Path | None) -> WritableLayer:
    size, files = (bytes_under(upper), files_under(upper)) if upper else (int(entry.get("SizeRw") or 0), 0)
    return WritableLayer(UUID(entry["Labels"][f"{PREFIX}kernel"]), size, files, _limit_of(entry))
