"""Threads for the actions on kernels, and the locks on kernels.

Only one action at a time holds a kernel. Hints, sync and watcher all submit here, so repeated or simultaneous orders do
no harm. The threads are daemons: a hanging call of the engine cannot keep the process alive.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal
from uuid import UUID

logger = logging.getLogger(__name__)

LaneName = str  # start, pull, ready, end, or a kind of job
Action = Literal["start", "stop", "look", "discard", "verdict", "thaw", "job"]
Move = tuple[LaneName, Callable[["Claim"], "Move | None"]]
Work = Callable[["Claim"], Move | None]


@dataclass(slots=True)
class Claim:
    """One action's lock on a kernel, or on a job (``kernel_id``: the job's id, ``lane``: its kind).

    ``deadline`` (monotonic) is set during a step that may take ``allowed`` seconds. ``abandon`` asks a start to give
    up. ``is_pulling``: the start waits for its image, so that nothing of the kernel exists here.
    """

    kernel_id: UUID
    generation: int
    action: Action
    allowed: float = 0.0
    deadline: float | None = None
    abandon: threading.Event = field(default_factory=threading.Event)
    is_pulling: bool = False
    queued_at: float = field(default_factory=time.monotonic)
    lane: LaneName = ""


_READY = 64  # kernels in a readiness check; such a thread polls twice a second and sleeps


class KernelQueues:
    """Thread pools that share one table of claims."""

    def __init__(self, *, starts: int, pulls: int, ends: int) -> None:
        sizes: dict[LaneName, int] = {"start": starts, "pull": pulls, "ready": _READY, "end": ends}
        self._pools = {name: _Pool(name, size) for name, size in sizes.items()}
        self._claims: dict[UUID, Claim] = {}
        self._next: dict[UUID, tuple[Claim, Work]] = {}
        self._changed = threading.Condition()

    def add(self, name: LaneName, size: int) -> None:
        """Add a thread pool for a kind of job."""
        self._pools[name] = _Pool(name, size)

    def submit(self, claim: Claim, work: Work) -> bool:
        """Queue the work unless another action holds the kernel; returns whether it was queued."""
        with self._changed:
            if claim.kernel_id in self._claims:
                return False
            self._claims[claim.kernel_id] = claim
        self._queue(claim, _first_lane(claim), work)
        return True

    def submit_after(self, claim: Claim, work: Work) -> None:
        """Queue the work, after the action that holds the kernel if there is one. Only one action waits; a stop
        replaces it."""
        with self._changed:
            if claim.kernel_id in self._claims:
                waiting = self._next.get(claim.kernel_id)
                if waiting is None or waiting[0].action != "stop":
                    self._next[claim.kernel_id] = (claim, work)
                return
            self._claims[claim.kernel_id] = claim
        self._queue(claim, _first_lane(claim), work)

    def withdraw(self, claim: Claim) -> bool:
        """Release a claim whose work waits for a thread; returns False if the work has begun. An action that waits for
        the kernel begins."""
        if not any(pool.take_back(claim) for pool in self._pools.values()):
            return False
        self._release(claim)
        return True

    def holder(self, kernel_id: UUID) -> Claim | None:
        """Return the claim on a kernel, or None."""
        with self._changed:
            return self._claims.get(kernel_id)

    def held(self) -> set[UUID]:
        """Return the ids of all kernels that an action holds."""
        with self._changed:
            return set(self._claims)

    def number(self, action: Action) -> int:
        """Return how many kernels, or jobs, this action holds."""
        with self._changed:
            return sum(claim.action == action for claim in self._claims.values())

    def overdue(self, now: float) -> list[Claim]:
        """Return the claims whose deadline has passed, each only once."""
        with self._changed:
            late = [claim for claim in self._claims.values() if claim.deadline is not None and claim.deadline < now]
            for claim in late:
                claim.deadline = None
            return late

    def wait_idle(self, timeout: float) -> bool:
        """Wait up to ``timeout`` seconds until no kernel is held; returns whether that happened."""
        with self._changed:
            return self._changed.wait_for(lambda: not self._claims, timeout)

    def _queue(self, claim: Claim, lane: LaneName, work: Work) -> None:
        self._pools[lane].put(claim, lambda: self._run(claim, work))

    def _run(self, claim: Claim, work: Work) -> None:
        move: Move | None = None
        try:
            move = work(claim)
        except Exception:
            logger.exception("kernel %s: its %s failed", claim.kernel_id, claim.action)
        if move is not None and not (claim.abandon.is_set() and move[0] != "end"):  # it would wait only to give up
            self._queue(claim, *move)
            return
        self._release(claim)

    def _release(self, claim: Claim) -> None:
        with self._changed:
            del self._claims[claim.kernel_id]
            follow_up = self._next.pop(claim.kernel_id, None)
            if follow_up is not None:
                self._claims[claim.kernel_id] = follow_up[0]
            self._changed.notify_all()
        if follow_up is not None:
            self._queue(follow_up[0], _first_lane(follow_up[0]), follow_up[1])


def _first_lane(claim: Claim) -> LaneName:
    return claim.lane or ("start" if claim.action == "start" else "end")


class _Pool:
    """A pool of up to ``size`` daemon threads; a thread is created when work arrives and none is idle."""

    def __init__(self, name: str, size: int) -> None:
        self._name, self._size = name, size
        self._jobs: deque[tuple[Claim, Callable[[], None]]] = deque()
        self._more = threading.Condition()
        self._threads = self._idle = 0

    def put(self, claim: Claim, job: Callable[[], None]) -> None:
        with self._more:
            self._jobs.append((claim, job))
            if self._idle >= len(self._jobs) or self._threads == self._size:
                self._more.notify()
                return
            self._threads += 1
            self._idle += 1
        threading.Thread(target=self._work, name=f"{self._name}-{self._threads}", daemon=True).start()

    def take_back(self, claim: Claim) -> bool:
        """Remove the claim's job; returns False if it does not wait here."""
        with self._more:
            found = next((entry for entry in self._jobs if entry[0] is claim), None)
            if found is not None:
                self._jobs.remove(found)
            return found is not None

    def _work(self) -> None:
        while True:
            with self._more:
                self._more.wait_for(lambda: bool(self._jobs))
                _, job = self._jobs.popleft()
                self._idle -= 1
            job()
            with self._more:
                self._idle += 1
