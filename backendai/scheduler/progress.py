"""The state of one pass. Free amounts only shrink during a pass, so a request that did not fit is not tried again.

Sessions with the same request share a ``Shape``, so each question about amounts is answered once.
"""

from __future__ import annotations

from uuid import UUID

from backendai.scheduler.capacity.agent_states import AgentStates
from backendai.scheduler.choose import Allocation
from backendai.scheduler.demand import DemandKey, demand_keys, demand_of
from backendai.scheduler.explaining.outlook import Kind, kinds_of, no_designated_agent, outlook
from backendai.scheduler.explaining.shortfall import Refusal, passed_steps
from backendai.scheduler.explaining.trace import QUEUE_PASSED, at_agents, at_capacity, at_gate
from backendai.scheduler.gates import closed_for_all, closed_for_one, context_of, free_of_gates, needs_network
from backendai.scheduler.limits import Limits
from backendai.scheduler.place import place, placement_of
from backendai.scheduler.plan import Pass, Placement, Plan, Reason, Step, Wait, new_tuple
from backendai.scheduler.sequence import UserHoldings
from backendai.scheduler.snapshot import SessionView, Snapshot

LACKS_ROOM = frozenset({"insufficient-resources", "too-many-kernels", "fragmented"})


class Shape:
    """Cached results for all sessions with the same request.

    ``hopeless``: why they could not start even on empty agents (None: they could). ``is_malformed``: a gate rejects the
    request itself. ``no_room``: why they do not fit now. ``lacks_room``: they do not fit only because other sessions
    occupy agents. ``no_room_beside``: why they do not fit beside the reservation for the first in line. ``steps``: the
    checks before an agent is selected.
    """

    __slots__ = ("asked", "demand", "hopeless", "is_malformed", "lacks_room", "no_room", "no_room_beside", "steps")

    def __init__(self, session: SessionView) -> None:
        self.demand = demand_of(session)
        self.asked = tuple(session.total.items())
        self.hopeless: Refusal | None = None
        self.is_malformed = False
        self.no_room: Refusal | None = None
        self.lacks_room = False
        self.no_room_beside: Refusal | None = None
        self.steps: tuple[Step, ...] = ()


class Progress:
    """The state of one pass: agents, limits, users' holdings, and cached results. Each placement updates this state."""

    def __init__(self, snapshot: Snapshot, *, explains: bool = True) -> None:
        self.snapshot = snapshot
        self._keeps_started = snapshot.rules.backfill
        self._retries_to_skip = snapshot.rules.retries_to_skip
        self.states = AgentStates(snapshot.agents, snapshot.rules)
        self.states.explains = explains
        self.tally = UserHoldings(snapshot.held)
        self.started: list[tuple[SessionView, list[Allocation]]] = []  # filled with backfill only
        self._limits = Limits(snapshot.limits, snapshot.networks)
        self._has_limits = bool(snapshot.limits) or snapshot.networks is not None
        self._gate_context = context_of(snapshot, self._limits)
        self._kinds: dict[frozenset[UUID], tuple[Kind, ...]] = {}
        self._shapes: dict[DemandKey, Shape] = {}
        self._gate_refusals: dict[int, Refusal] = {}
        self._placements: list[Placement] = []
        self._waits: list[Wait] = []
        self._pass = Pass(len(snapshot.pending), snapshot.rules.sequence, snapshot.rules.selection)

    def shapes(self) -> tuple[dict[int, Shape], dict[int, Shape]]:
        """Return the shapes of all sessions, by the session's ``id()``, in two maps. The first has the sessions without
        per-session gates, the second has the others. All shapes are built at once in the order of memory, which is
        faster than one by one."""
        free: dict[int, Shape] = {}
        gated: dict[int, Shape] = {}
        pending, shapes, context = self.snapshot.pending, self._shapes, self._gate_context
        for session, key, is_free in zip(pending, demand_keys(pending), free_of_gates(pending, context), strict=True):
            shape = shapes.get(key)
            if shape is None:
                shape = shapes[key] = self._new_shape(session)
            (free if is_free else gated)[id(session)] = shape
        return free, gated

    def barred(self, session: SessionView, shape: Shape) -> Refusal | None:
        """Return why the session cannot start even while agents are free; None if it can. Either a gate rejects it, or
        it does not fit on empty agents. Reasons that never end are returned first."""
        if shape.is_malformed:
            return shape.hopeless
        closed = closed_for_one(session, shape.asked, self._gate_context)
        if closed is None:
            return shape.hopeless
        index, reason = closed
        if shape.hopeless is not None and shape.hopeless.reason.never and not reason.never:
            return shape.hopeless
        refusal = self._gate_refusals.get(id(reason))  # many sessions may share a reason
        if refusal is None or refusal.reason is not reason:
            refusal = self._gate_refusals[id(reason)] = at_gate(index, reason)
        return refusal

    def place(self, session: SessionView, shape: Shape) -> list[Allocation] | Refusal:
        """Reserve agents for the session and return them, or return why it does not fit. The reservations last for the
        rest of the pass. Sessions of a shape that did not fit before are not tried again."""
        if shape.no_room is not None:
            return shape.no_room
        outcome = place(session, shape.demand, self.states)
        if isinstance(outcome, Refusal):
            shape.lacks_room = outcome.reason.code in LACKS_ROOM
            outcome = shape.no_room = at_agents(outcome)
        return outcome

    def start(self, session: SessionView, shape: Shape, allocations: list[Allocation], turn: int) -> None:
        """Record the session's placement, and count its amounts against the limits."""
        if not shape.steps and self.states.explains:
            shape.steps = (*QUEUE_PASSED, *passed_steps(allocations[0].request, self.states))
        self._placements.append(placement_of(session, allocations, turn, self._pass, shape.steps))
        if self._keeps_started:
            self.started.append((session, allocations))
        if self._has_limits:
            self._limits.count(session.holder, shape.asked)
            if needs_network(session):
                self._limits.count_network()
        self.tally.latest = shape.asked

    def wait(self, session: SessionView, refusal: Refusal, turn: int, *, tried: bool = False) -> None:
        """Record that the session waits, and why."""
        waits, within = self._waits, self._pass
        overtaken = 0 < self._retries_to_skip < session.attempts  # as in ``is_tired``
        fields = session.id, refusal.reason, len(waits) + 1, tried, overtaken, turn, within, refusal.steps
        waits.append(new_tuple(Wait, fields))

    def plan(self) -> Plan:
        """Return the placements and waits recorded in this pass."""
        return Plan(tuple(self._placements), tuple(self._waits), self.states.next_agent)

    def _new_shape(self, session: SessionView) -> Shape:
        shape = Shape(session)
        closed = closed_for_all(session, shape.asked, self._gate_context)
        if closed is not None:
            shape.hopeless, shape.is_malformed = at_gate(*closed), True
            return shape
        reason = self._reason_even_if_empty(session, shape)
        if reason is not None:
            shape.hopeless = at_capacity(reason)
        return shape

    def _reason_even_if_empty(self, session: SessionView, shape: Shape) -> Reason | None:
        if shape.demand.flaw is not None:
            return shape.demand.flaw
        kinds = self._kinds_for(session.designated)
        if session.designated and self.snapshot.agents and not kinds:
            return no_designated_agent(session.designated, self.snapshot.group)
        return outlook(shape.demand, kinds, self.snapshot.group)

    def _kinds_for(self, designated: frozenset[UUID]) -> tuple[Kind, ...]:
        kinds = self._kinds.get(designated)
        if kinds is None:
            agents = self.snapshot.agents
            if designated:
                agents = tuple(agent for agent in agents if agent.id in designated)
            kinds = self._kinds[designated] = kinds_of(agents)
        return kinds
