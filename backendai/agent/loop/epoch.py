"""Keeps the epoch of the portal's database, and the kernels protected from an older one.

A database that was restored from a backup, or another database, lacks the kernels started after it was saved. So an
agent that notices such a database keeps all its kernels until an administrator decides about each.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Collection, Iterable
from pathlib import Path
from uuid import UUID

from backendai.agent.loop.reconcile import Key
from backendai.agent.settings.credentials import write_private
from backendai.base.wire.messages import Epoch, KernelSighting, SyncDown

logger = logging.getLogger(__name__)

_FILE = "epoch.json"


class EpochGuard:
    """The newest known epoch, and the kernels kept because of an older one. Both are saved on disk. For one thread."""

    def __init__(self, data: Path) -> None:
        self._data = data
        self._lineage, self._tick, self._kept = _load(data / _FILE)

    @property
    def kept(self) -> frozenset[Key]:
        """The kernels that are removed only by an administrator's decision."""
        return frozenset(self._kept)

    def keep(self, keys: Collection[Key]) -> None:
        """Add these kernels to the kept ones."""
        if not set(keys) <= self._kept:
            self._kept |= set(keys)
            self._save()

    def hear(self, answer: SyncDown, listing: Iterable[KernelSighting]) -> None:
        """Update the state with an answer of the portal. Keeps all kernels if its database is older or another one; a
        kept kernel is released when the portal wants it again, an administrator decided about it, or it no longer
        exists."""
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
