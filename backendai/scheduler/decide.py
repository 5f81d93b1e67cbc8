"""One pass over one resource group: which pending sessions start, where, and why the others wait."""

from __future__ import annotations

from backendai.scheduler.demand import Demand, DemandKey, demand_key, demand_of
from backendai.scheduler.feasible import GATES, closed_gate, describe_request
from backendai.scheduler.outlook import kinds_of, outlook
from backendai.scheduler.place import Seat, place
from backendai.scheduler.plan import Placement, Plan, Reason, Step, Wait
from backendai.scheduler.rank import selection_named
from backendai.scheduler.rooms import Rooms
from backendai.scheduler.sequence import sequence_named
from backendai.scheduler.shortfall import Refusal, fixed_steps
from backendai.scheduler.snapshot import SessionView, Snapshot

_GATES_PASSED = tuple(Step(gate.step, True, gate.passed) for gate in GATES)
_CAPACITY_PASSED = Step("capacity", True, "The agents, when empty, are big enough.")
_QUEUE_PASSED = Step("queue", True, "No session ahead holds this one back.")


def decide(snapshot: Snapshot) -> Plan:
    """Return a placement or a wait for every pending session; the same snapshot gives the same plan.

    Raises ValueError for an unknown sequence or selection, or an option that is not a number.
    """
    this_pass = _Pass(snapshot)
    # 1. Order: whose turn comes first.
    queue = sequence_named(snapshot.rules.sequence)(snapshot.pending)
    for turn, session in enumerate(queue, 1):
        step = Step("sequencing", True, f"turn {turn} of {len(queue)} by {snapshot.rules.sequence}")
        # 2. Gates: what keeps this session from starting whatever the agents have.
        # 3. Capacity: could it start at all, were every agent empty?
        # 4. Queue: does a session ahead of it hold it back?
        refusal = this_pass.gates(session) or this_pass.capacity(session) or this_pass.queue()
        if refusal is not None:
            this_pass.wait(session, step, refusal)
            continue
        # 5. Place: the best agent that fits, for all of its kernels or for none.
        outcome = this_pass.place(session)
        if not isinstance(outcome, Refusal):
            this_pass.start(session, step, outcome)
            continue
        # 6. Say why not, and keep those behind from taking what it waits for.
        this_pass.wait_for_room(session, step, outcome)
    return this_pass.plan()


class _Pass:
    """What one pass remembers. Free amounts only shrink in it, so what did not fit once is not tried again."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot
        self._rooms = Rooms(snapshot.agents, selection_named(snapshot.rules.selection), snapshot.rules.slot_order)
        self._kinds = kinds_of(snapshot.agents)
        self._retries_to_skip = _retries_to_skip(snapshot)
        self._demands: dict[DemandKey, Demand] = {}
        self._too_big: dict[Demand, Refusal | None] = {}
        self._no_room: dict[Demand, Refusal] = {}
        self._fixed_steps: dict[str, tuple[Step, ...]] = {}
        self._behind: Refusal | None = None
        self._placements: list[Placement] = []
        self._waits: list[tuple[SessionView, Step, Refusal]] = []
        self._pushed_back: list[tuple[SessionView, Step, Refusal]] = []

    def gates(self, session: SessionView) -> Refusal | None:
        closed = closed_gate(session, self._snapshot.now)
        if closed is None:
            return None
        index, reason = closed
        return Refusal(reason, (*_GATES_PASSED[:index], _failed(GATES[index].step, reason)))

    def capacity(self, session: SessionView) -> Refusal | None:
        demand = self._demand(session)
        if demand not in self._too_big:
            reason = outlook(demand, self._kinds, self._snapshot.group)
            steps = () if reason is None else (*_GATES_PASSED, _failed("capacity", reason))
            self._too_big[demand] = None if reason is None else Refusal(reason, steps)
        return self._too_big[demand]

    def queue(self) -> Refusal | None:
        return self._behind

    def place(self, session: SessionView) -> list[Seat] | Refusal:
        demand = self._demand(session)
        refusal = self._no_room.get(demand)
        if refusal is not None:
            return refusal
        outcome = place(demand, self._rooms, session.avoid_agents)
        if isinstance(outcome, Refusal):
            steps = (*_GATES_PASSED, _CAPACITY_PASSED, _QUEUE_PASSED, *outcome.steps)
            outcome = self._no_room[demand] = Refusal(outcome.reason, steps)
        return outcome

    def start(self, session: SessionView, step: Step, seats: list[Seat]) -> None:
        if session.multi_node:
            agents = {kernel.id: seat.room.id for kernel, seat in zip(session.kernels, seats, strict=True)}
        else:
            agents = {kernel.id: seats[0].room.id for kernel in session.kernels}
        steps = (step, *self._steps_before_selection(seats[0].request.architecture), *map(self._selected, seats))
        self._placements.append(Placement(session.id, agents, steps))

    def wait(self, session: SessionView, step: Step, refusal: Refusal) -> None:
        self._waits.append((session, step, refusal))

    def wait_for_room(self, session: SessionView, step: Step, refusal: Refusal) -> None:
        if self._snapshot.rules.sequence != "fifo":
            self.wait(session, step, refusal)
        elif 0 < self._retries_to_skip <= session.attempts:
            self._pushed_back.append((session, step, refusal))
        else:
            self.wait(session, step, refusal)
            self._behind = _behind(session, self._demand(session), refusal.reason)

    def plan(self) -> Plan:
        waits = [
            Wait(session.id, refusal.reason, position, (step, *refusal.steps))
            for position, (session, step, refusal) in enumerate(self._waits + self._pushed_back, 1)
        ]
        return Plan(tuple(self._placements), tuple(waits))

    def _demand(self, session: SessionView) -> Demand:
        key = demand_key(session)
        demand = self._demands.get(key)
        if demand is None:
            demand = self._demands[key] = demand_of(session)
        return demand

    def _steps_before_selection(self, architecture: str) -> tuple[Step, ...]:
        steps = self._fixed_steps.get(architecture)
        if steps is None:
            steps = (*_GATES_PASSED, _CAPACITY_PASSED, _QUEUE_PASSED, *fixed_steps(architecture, self._rooms.all))
            self._fixed_steps[architecture] = steps
        return steps

    def _selected(self, seat: Seat) -> Step:
        message = f"{seat.room.name} by {self._snapshot.rules.selection}; {seat.passed_over} better ranked lacked room"
        return Step("selection", True, message)


def _retries_to_skip(snapshot: Snapshot) -> int:
    return snapshot.rules.retries_to_skip


def _failed(step: str, reason: Reason) -> Step:
    return Step(step, False, reason.message, reason.code)


def _behind(blocker: SessionView, demand: Demand, why: Reason) -> Refusal:
    kernels = len(demand.requests)
    asked = describe_request(demand.requests[0]) if kernels == 1 else f"{demand.total.describe()} on {kernels} kernels"
    # The blocker's name is its owner's affair: whoever waits may not see that session.
    message = f"Waits for its turn: the first in line asks for {asked}."
    details: dict[str, object] = {"blocker": str(blocker.id), "blocker_reason": why.code}
    reason = Reason("behind-in-queue", message, details)
    return Refusal(reason, (*_GATES_PASSED, _CAPACITY_PASSED, _failed("queue", reason)))
