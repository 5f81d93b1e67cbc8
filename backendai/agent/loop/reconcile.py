"""Compares existing kernels with desired ones and returns orders; removals need two sightings in a row, and so does
letting a frozen kernel go on.

Keeps only that memory: no I/O, no clock, no threads.
"""

from __future__ import annotations

from collections.abc import Iterable, Set
from dataclasses import dataclass, field
from uuid import UUID

from backendai.base.wire.homes import STORE
from backendai.base.wire.images import COMMIT
from backendai.base.wire.messages import KernelSighting, StopOrder, SyncDown

Key = tuple[UUID, int]  # a kernel's id and generation

# As long as no sync fails, kernels end by a stop order. If more running kernels than this are unwanted
# at once, the database is faulty.
MOST_REMOVED_AT_ONCE = 5
_FREEZING = frozenset({STORE, COMMIT})  # kinds of jobs whose kernels stand still


@dataclass(slots=True)
class Orders:
    """The orders for now. ``ended``: desired kernels that have ended; their end must be reported. ``doubted``: running
    kernels whose removal was ordered, too many at once to be plausible. ``thaw``: kernels that an agent froze before it
    was killed, for a job that is not wanted any more."""

    start: list[Key] = field(default_factory=list)
    stop: list[StopOrder] = field(default_factory=list)
    ended: list[Key] = field(default_factory=list)
    discard: list[Key] = field(default_factory=list)
    missing: list[Key] = field(default_factory=list)
    thaw: list[Key] = field(default_factory=list)
    doubted: list[Key] = field(default_factory=list)


class Reconciler:
    """Compares listings of the backend with answers of the portal. A listing must be older than its answer."""

    def __init__(self) -> None:
        self._to_start: set[Key] = set()
        self._unwanted: set[Key] = set()
        self._started: set[Key] = set()
        self._missing: set[Key] = set()
        self._frozen: set[Key] = set()

    def compare(
        self,
        listing: Iterable[KernelSighting],
        answer: SyncDown,
        *,
        held: Set[UUID],
        eager: bool,
        kept: Set[Key] = frozenset(),
        in_touch: bool = False,
    ) -> Orders:
        """Return the orders. ``held``: kernels that an action holds. ``eager``: start at the first sighting, as no hint
        can arrive. ``kept``: kernels that only an administrator's decision removes. ``in_touch``: the agent and the
        portal have exchanged syncs without a gap."""
        here = {(one.kernel_id, one.generation): one for one in listing}
        desired = {(one.kernel_id, one.generation): one.started for one in answer.desired}
        stopping = {order.kernel_id for order in answer.stop}
        over = {key for key, one in here.items() if key in desired and key[0] not in stopping and not one.running}
        # A container created but never started (the agent crashed) is started, not reported as ended.
        ended = {key for key in over if desired[key] or here[key].exit_code is not None}
        discard = self._due_discards(answer, kept)
        running = [key for key in discard if key in here and here[key].running]
        doubted = running if in_touch and len(running) > MOST_REMOVED_AT_ONCE else []
        decided = {(one.kernel_id, one.generation) for one in answer.removals} & here.keys()
        return Orders(
            start=self._due_starts({key for key, started in desired.items() if not started} - ended, eager=eager),
            stop=list(answer.stop),
            ended=sorted(ended),
            discard=sorted(set(discard) - set(doubted) | decided),
            missing=self._due_missing(here.keys(), answer, held),
            thaw=self._due_thaws({key for key in desired.keys() - over if key in here and here[key].frozen}, answer),
            doubted=doubted,
        )

    def forget(self) -> None:
        """Forget all first sightings, as the engine or the portal did not answer: two sightings must be consecutive."""
        self._unwanted, self._missing, self._started, self._frozen = set(), set(), set(), set()

    def _due_starts(self, waiting: set[Key], *, eager: bool) -> list[Key]:
        before, self._to_start = self._to_start, waiting
        return [key for key in waiting if eager or key in before]

    def _due_thaws(self, frozen: set[Key], answer: SyncDown) -> list[Key]:
        # Which kernel a job is about is not known before it begins. Ends thaw their kernels themselves.
        is_at_work = any(job.kind in _FREEZING for job in answer.jobs)
        idle = (
            set() if is_at_work else {key for key in frozen if key[0] not in {order.kernel_id for order in answer.stop}}
        )
        before, self._frozen = self._frozen, idle
        return sorted(idle & before)

    def _due_discards(self, answer: SyncDown, kept: Set[Key]) -> list[Key]:
        unwanted = {(one.kernel_id, one.generation) for one in answer.unwanted} - kept
        before, self._unwanted = self._unwanted, unwanted
        return [key for key in self._unwanted if key in before]

    def _due_missing(self, here: Set[Key], answer: SyncDown, held: Set[UUID]) -> list[Key]:
        # Kernels desired before and after the listing but missing in it.
        before, self._started = (
            self._started,
            {(one.kernel_id, one.generation) for one in answer.desired if one.started},
        )
        absent = {key for key in before & self._started if key not in here and key[0] not in held}
        struck, self._missing = self._missing, absent
        return [key for key in absent if key in struck]
