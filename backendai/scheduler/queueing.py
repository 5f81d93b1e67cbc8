"""Decides which sessions are held back when a session does not fit.

Under a strict sequence a session that does not fit holds back all sessions behind it; under the others it holds back
sessions of lower priority. After more than ``Rules.retries_to_skip`` tries it holds back none, until others have passed
it for ``Rules.overtaking_limit``.

With backfill, the first session that does not fit is the first in line. It gets a reserved start if the known end times
allow that. Others may pass it only as ``backfill`` allows, under every sequence. After too many tries it stops holding
back others only if it has no reserved start.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import datetime

from backendai.base.core.messages import Message
from backendai.scheduler.backfill import Reservation, Start, earliest_start, reserve, reserve_anywhere
from backendai.scheduler.capacity.feasible import describe_request
from backendai.scheduler.choose import Allocation
from backendai.scheduler.explaining.shortfall import Refusal
from backendai.scheduler.explaining.trace import at_agents, at_queue
from backendai.scheduler.place import place
from backendai.scheduler.plan import Reason
from backendai.scheduler.progress import Progress, Shape
from backendai.scheduler.sequence import Sequence, may_be_passed
from backendai.scheduler.snapshot import RunningView, SessionView, Snapshot


class Queue:
    """Decides during a pass which sessions wait behind another one, and reserves slots.

    ``holds_back``: some sessions may be held back. ``is_settled``: further sessions that do not fit change nothing.
    ``place``: the function that reserves agents for a session without delaying the first in line.
    """

    def __init__(self, snapshot: Snapshot, sequence: Sequence, progress: Progress) -> None:
        self._snapshot = snapshot
        self._is_strict = sequence.is_strict
        self._progress = progress
        self.is_settled = self.holds_back = False
        self.place: Callable[[SessionView, Shape], list[Allocation] | Refusal] = progress.place
        self._first: SessionView | None = None
        self._behind: Refusal | None = None
        self._reservation: Reservation | None = None
        self._without_start: set[Shape] = set()

    def held_back(self, session: SessionView) -> Refusal | None:
        """Return why the session waits until the first in line has started; None if the pass can try it."""
        if self._first is None:
            return None
        return self._behind if self._is_strict or session.priority < self._first.priority else None

    def wait_for_room(self, session: SessionView, shape: Shape, refusal: Refusal) -> tuple[Refusal, bool]:
        """Return why a session that did not fit waits, and whether this counts as a try. Can reserve room for the
        session and hold back later ones."""
        if self._reservation is not None or not shape.lacks_room:
            return refusal, False
        backfill = self._snapshot.rules.backfill
        if self._first is not None and not backfill:
            return refusal, True
        gives_way = may_be_passed(session, self._snapshot.rules, self._snapshot.now)
        if backfill:
            start = self._reserved_start(session, shape)
            if start is not None or not gives_way:
                refusal = self._reserve(session, shape, refusal, start)
        elif not gives_way:
            self._hold_back(session, shape, refusal.reason)
        return refusal, True

    def _place_beside(self, session: SessionView, shape: Shape) -> list[Allocation] | Refusal:
        """Reserve agents for a session without touching the reservation for the first in line. Returns the agents, or
        why the session does not fit. A session that ends before the reserved start may use reserved slots."""
        assert self._reservation is not None
        if self._reservation.ends_before(session, self._snapshot.now):
            self._reservation.keep(False)
            return self._progress.place(session, shape)
        if shape.no_room_beside is None:
            self._reservation.keep(True)
            outcome = place(session, shape.demand, self._progress.states)
            if not isinstance(outcome, Refusal):
                return outcome
            shape.no_room_beside = self._behind or at_agents(outcome)
        return shape.no_room_beside

    def _reserved_start(self, session: SessionView, shape: Shape) -> Start | None:
        if shape in self._without_start:
            return None
        running = (*self._snapshot.running, *self._started())
        start = earliest_start(session, shape.demand, self._progress.states, running, self._snapshot.now)
        if start is None:
            self._without_start.add(shape)
        return start

    def _started(self) -> list[RunningView]:
        """Return the sessions that this pass has started, as running sessions."""
        now = self._snapshot.now
        return [
            RunningView(
                session.id,
                tuple(
                    (allocation.state.id, allocation.request.wanted, allocation.request.kernels)
                    for allocation in allocations
                ),
                None if session.longest_run is None else now + session.longest_run,
            )
            for session, allocations in self._progress.started
        ]

    def _reserve(self, session: SessionView, shape: Shape, refusal: Refusal, start: Start | None) -> Refusal:
        states, reason = self._progress.states, refusal.reason
        if start is None:
            self._reservation = reserve_anywhere(session, shape.demand, states, self._snapshot.agents)
        else:
            self._reservation = reserve(start, states)
            message = Message(
                "{message} This session starts at {at} at the latest.", message=reason.message, at=_when(start.at)
            )
            details = {**reason.details, "starts_at": start.at.isoformat()}
            reason = replace(reason, message=message, details=details, until=start.at)
        self.place = self._place_beside
        self._hold_back(session, shape, reason)
        return Refusal(reason, refusal.steps)

    def _hold_back(self, session: SessionView, shape: Shape, why: Reason) -> None:
        self._first = session
        self.is_settled = self.holds_back = not self._snapshot.rules.backfill
        kernels = len(shape.demand.requests)
        asked = describe_request(shape.demand.requests[0]) if kernels == 1 else _describe_kernels(shape)
        # The message does not name the first in line: owners of other sessions may not see that session.
        message, aside = self._why_behind(), Message("That session requests {asked}.", asked=asked)
        about_the_first: dict[str, object] = {"blocker": str(session.id), "blocker_reason": why.code}
        if self._snapshot.rules.backfill:
            if why.until:
                aside = Message(
                    "That session requests {asked} and starts at {until} at the latest.",
                    asked=asked,
                    until=_when(why.until),
                )
            about_the_first["starts_at"] = why.until.isoformat() if why.until else None
        self._behind = at_queue(Reason("behind-in-queue", message, aside=aside, aside_details=about_the_first))

    def _why_behind(self) -> str:
        rules = self._snapshot.rules
        if rules.backfill:
            return Message(
                "Queued behind a session that does not fit yet: free resources are reserved for that session."
            )
        if not self._is_strict:
            return Message("Queued behind a session of higher priority that does not fit yet.")
        if rules.retries_to_skip:
            return Message("Queued behind a session that does not fit yet.")
        group = self._snapshot.group
        return Message(
            "Queued behind a session that does not fit yet (group {group} runs sessions strictly in order).",
            group=group,
        )


def _describe_kernels(shape: Shape) -> str:
    return Message(
        "{total} on {number} kernels", total=shape.demand.total.describe(), number=len(shape.demand.requests)
    )


def _when(at: datetime) -> str:
    return f"{at:%Y-%m-%d %H:%M:%S %Z}".strip()
