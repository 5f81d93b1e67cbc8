"""Which database the portal had, and which kernels this agent keeps although a portal calls them over.

A database that was restored from a backup, or another one, knows nothing of what began after it was saved. It must not
cost a running kernel: an agent that notices keeps all that is here until an administrator decides, kernel by kernel.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Collection, Iterable
from pathlib import Path
from uuid import UUID

from backendai.agent.credentials import write_private
from backendai.agent.reconcile import Key
from backendai.wire.messages import Epoch, KernelSighting, SyncDown

logger = logging.getLogger(__name__)

_FILE = "epoch.json"


class EpochGuard:
    """The highest epoch heard and the kernels kept because of an older one; both outlive the agent. One thread."""

    def __init__(self, data: Path) -> None:
        self._data = data
        self._lineage, self._tick, self._kept = _load(data / _FILE)

    @property
    def kept(self) -> frozenset[Key]:
        """The kernels that only an administrator's decision removes."""
        return frozenset(self._kept)

    def keep(self, keys: Collection[Key]) -> None:
        """Keep these as well."""
        if not set(keys) <= self._kept:
            self._kept |= set(keys)
            self._save()

    def hear(self, answer: SyncDown, listing: Iterable[KernelSighting]) -> None:
        """Take an answer in: keep all that is here if its database is older or another one, and let go of what the
        portal wants again, has decided about, or is gone."""
        here = {(one.kernel_id, one.generation) for one in listing}
        before = (self._lineage, self._tick, set(self._kept))
        if answer.epoch is not None:
            if self._is_older(answer.epoch):
                logger.warning(
                    "the portal has an older or another database than this agent knew (%s:%d, now %s:%d): "
                    "%d kernels stay until an administrator decides",
                    *(self._lineage, self._tick, answer.epoch.lineage, answer.epoch.tick, len(here)),
                )
                self._kept |= here
            self._lineage, self._tick = answer.epoch.lineage, answer.epoch.tick
        wanted = {(one.kernel_id, one.generation) for one in answer.desired}
        decided = {(one.kernel_id, one.generation) for one in answer.removals}
        self._kept = (self._kept & here) - wanted - decided
        if before != (self._lineage, self._tick, self._kept):
            self._save()

    def _is_older(self, epoch: Epoch) -> bool:
        return bool(self._lineage) and (epoch.lineage != self._lineage or epoch.tick < self._tick)

    def _save(self) -> None:
        kept = sorted((str(kernel_id), generation) for kernel_id, generation in self._kept)
        content = {"lineage": self._lineage, "tick": self._tick, "kept": kept}
        try:
            write_private(self._data / _FILE, content)
        except OSError as error:
            logger.warning("the epoch of the database cannot be written: %s", error)


def _load(path: Path) -> tuple[str, int, set[Key]]:
    try:
        content = json.loads(path.read_text())
        kept = {(UUID(kernel_id), int(generation)) for kernel_id, generation in content["kept"]}
        return str(content["lineage"]), int(content["tick"]), kept
    except (OSError, ValueError, KeyError, TypeError):
        return "", 0, set()
