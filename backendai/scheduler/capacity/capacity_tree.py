"""Finds the agent that comes closest to having room for a request, without checking every agent.

Agents are the leaves of a tree. Each node stores the maximum of each slot over the agents below it. No agent below can
be closer than this maximum, so most nodes are never searched. When an agent's free amounts fall, the maxima above it
may be too high until the next search, but never too low. A node is divided when it is first searched.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import cast

from backendai.scheduler.capacity.agent_state import AgentState
from backendai.scheduler.demand import Request

_BRANCHES = 8


class _TreeNode:
    """A group of agents, with nodes below it once it is divided; ``order``: the position of the first agent by name."""

    __slots__ = ("above", "below", "free", "is_stale", "order")

    def __init__(self, states: list[AgentState]) -> None:
        self.above: _TreeNode | None = None
        self.below: list[AgentState] | list[_TreeNode] = states
        self.order: int = min(state.order for state in states)
        self.free: dict[str, int] = {}
        self.restore()

    def restore(self) -> None:
        free: dict[str, int] = {}
        for each in self.below:
            for name, amount in each.free.items():
                if amount > free.get(name, 0):
                    free[name] = amount
        self.free = free
        self.is_stale = False


class CapacityTree:
    """A tree of agents by free amounts; call ``shrunk`` or ``grown`` after an agent changes."""

    def __init__(self, states: Iterable[AgentState]) -> None:
        everybody = list(states)
        self._root = _TreeNode(everybody) if everybody else None
        self._above = dict.fromkeys(everybody, self._root)

    def closest(self, request: Request, suits: Callable[[AgentState], bool]) -> tuple[int, AgentState] | None:
        """Return the closest agent that ``suits`` accepts, as a pair: its ``distance`` and the agent. None if there is
        none. Of equally close agents the first by name is returned."""
        search = _Search(request, suits, self._divide)
        if self._root is not None:
            search.open(self._root)
        return None if search.state is None else (search.best[0], search.state)

    def shrunk(self, state: AgentState) -> None:
        """Mark the nodes above an agent as outdated after its free amounts fell."""
        node = self._above.get(state)
        while node is not None and not node.is_stale:
            node.is_stale = True
            node = node.above

    def grown(self, state: AgentState) -> None:
        """Raise the maxima of the nodes above an agent after its free amounts grew."""
        node = self._above.get(state)
        while node is not None:
            for name, amount in state.free.items():
                if amount > node.free.get(name, 0):
                    node.free[name] = amount
            node = node.above

    def _divide(self, node: _TreeNode) -> None:
        """Insert nodes of similar agents below a node that has too many agents."""
        parts = [cast(list[AgentState], node.below)]
        while len(parts) < _BRANCHES:
            parts = [half for part in parts for half in _halves(part)]
        node.below = nodes = [_TreeNode(part) for part in parts]
        for part, each in zip(parts, nodes, strict=True):
            each.above = node
            self._above.update(dict.fromkeys(part, each))


class _Search:
    def __init__(
        self, request: Request, suits: Callable[[AgentState], bool], divide: Callable[[_TreeNode], None]
    ) -> None:
        self._items, self._suits, self._divide = request.items, suits, divide
        self.best = (-1, -1)
        self.state: AgentState | None = None

    def open(self, node: _TreeNode) -> None:
        if node.is_stale:
            node.restore()
        if len(node.below) > _BRANCHES:
            self._divide(node)
        bounds = []
        for each in node.below:
            free, away = each.free, 0
            for name, amount in self._items:  # as in ``distance``; a call for each agent would double the time
                missing = amount - free.get(name, 0)
                if missing > 0:
                    away += missing * 1000 // amount
            if self.state is None or (away, each.order) < self.best:
                bounds.append((away, each.order, each))
        bounds.sort()
        for away, order, each in bounds:
            if self.state is not None and (away, order) >= self.best:
                break
            if isinstance(each, _TreeNode):
                self.open(each)
            elif self._suits(each):
                self.best, self.state = (away, order), each


def _halves(states: list[AgentState]) -> tuple[list[AgentState], list[AgentState]]:
    """Return the agents split in two at the slot in which they differ most."""
    frees = [state.free for state in states]
    widest, spread = [0] * len(states), -1.0
    for name in frees[0]:
        amounts = [free.get(name, 0) for free in frees]
        most = max(amounts)
        if (most - min(amounts)) / (most or 1) > spread:
            widest, spread = amounts, (most - min(amounts)) / (most or 1)
    ordered = [states[at] for at in sorted(range(len(states)), key=widest.__getitem__)]
    return ordered[: len(states) // 2], ordered[len(states) // 2 :]
