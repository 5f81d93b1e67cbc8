"""The frame of every start: one start of a kernel at a time creates what has its name, or adopts what has it already.

A backend fills in the steps. A name exists only once, so that creating under it is the lock between agents.
"""

from __future__ import annotations

import abc
import threading
import time
from collections.abc import Hashable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Generic, TypeVar
from weakref import WeakValueDictionary

from backendai.agent.backends.base import StaleGeneration, Started, StartFailed
from backendai.base.wire.messages import KernelSpec

_RETRY_SECONDS = 0.05
Found = TypeVar("Found")


class KeyedLocks:
    """One lock for each key, as long as a thread holds it or waits for it."""

    def __init__(self) -> None:
        self._locks: WeakValueDictionary[Hashable, threading.Lock] = WeakValueDictionary()
        self._guard = threading.Lock()

    @contextmanager
    def held(self, key: Hashable, *, waits: bool = True) -> Iterator[bool]:
        """Hold the key's lock. Yields False without it if another thread holds it, unless this one ``waits``."""
        with self._guard:
            lock = self._locks.setdefault(key, threading.Lock())
        is_held = lock.acquire(blocking=waits)
        try:
            yield is_held
        finally:
            if is_held:
                lock.release()


@dataclass(frozen=True, slots=True)
class Occupant:
    """What has a kernel's name. ``is_ours``: of this agent. ``is_whole``: else it is being removed, or left by a failed
    start."""

    deployment: str
    generation: int
    is_ours: bool = True
    is_whole: bool = True


class KernelStarter(abc.ABC, Generic[Found]):
    """Starts the kernels of one agent. ``Found``: a container, pod or folder with a kernel's name. ``least_seconds``: a
    time limit that is never shorter."""

    least_seconds = 0.0

    def __init__(self, deployment: str) -> None:
        self._deployment, self.locks = deployment, KeyedLocks()

    def start(self, spec: KernelSpec) -> Started:
        """Start or adopt the kernel (see ``Backend.start``)."""
        if spec.deployment != self._deployment:
            raise StartFailed("This kernel belongs to another deployment.", code="wrong-deployment")
        deadline = time.monotonic() + max(spec.create_timeout, self.least_seconds)
        with self.locks.held(spec.kernel_id):
            while (started := self._try(spec, deadline)) is None:
                if time.monotonic() >= deadline:
                    raise StartFailed(
                        "An older container was still there after {create_timeout} seconds.",
                        create_timeout=round(spec.create_timeout),
                    )
                time.sleep(_RETRY_SECONDS)
        return started

    def _try(self, spec: KernelSpec, deadline: float) -> Started | None:
        """Create or adopt the kernel once; None if that has to be repeated."""
        if (made := self._create(spec)) is not None:
            return self._run(spec, made, deadline, adopted=False)
        found = self._find(spec)
        if found is None or not self._keeps(spec, found):
            return None
        return self._run(spec, found, deadline, adopted=True)

    def _keeps(self, spec: KernelSpec, found: Found) -> bool:
        """Return whether this is the requested kernel; removes one of an older generation."""
        occupant = self._occupant(found)
        if occupant.deployment != self._deployment:
            self._leave(spec)
            raise StartFailed("Another deployment has a container with this kernel's name.", code="name-taken")
        if occupant.generation > spec.generation:
            raise StaleGeneration.of(occupant.generation, spec.generation)
        if occupant.generation < spec.generation or not occupant.is_whole:
            self._discard(spec, found)  # an older generation, possibly of another agent of this deployment
            return False
        if not occupant.is_ours:
            self._leave(spec)
            raise StartFailed("Another agent on this engine or cluster has this kernel.", code="name-taken")
        return True

    def _leave(self, spec: KernelSpec) -> None:
        """Delete what a start has prepared for a kernel that is not this agent's."""

    @abc.abstractmethod
    def _find(self, spec: KernelSpec) -> Found | None:
        """Return what has the kernel's name, of any owner."""

    @abc.abstractmethod
    def _occupant(self, found: Found) -> Occupant:
        """Describe what was found."""

    @abc.abstractmethod
    def _discard(self, spec: KernelSpec, found: Found) -> None:
        """Remove what was found, and what belongs to it; returns when its name is free."""

    @abc.abstractmethod
    def _create(self, spec: KernelSpec) -> Found | None:
        """Prepare and create the kernel; None if its name is taken. Raises like ``start``, after cleaning up."""

    @abc.abstractmethod
    def _run(self, spec: KernelSpec, found: Found, deadline: float, *, adopted: bool) -> Started | None:
        """Return the kernel when its main process runs; None if it has disappeared. Raises like ``start``, after
        cleaning up."""
