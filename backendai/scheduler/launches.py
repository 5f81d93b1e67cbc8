"""Placement preferences of launches: spread their sessions over agents, or pack them on few agents."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from backendai.scheduler.capacity.agent_state import AgentState
from backendai.scheduler.snapshot import AgentView, SessionView

_NONE: Mapping[int, int] = {}


class Affinity:
    """The placement preference of one session. ``companions``: the number of kernels of the same launch on each agent,
    by the agent's ``order``."""

    __slots__ = ("companions", "spreads")

    def __init__(self, companions: Mapping[int, int], *, spreads: bool) -> None:
        self.companions, self.spreads = companions, spreads

    def of(self, state: AgentState) -> int:
        """Return the agent's penalty; a higher penalty means less preferred."""
        number = self.companions.get(state.order, 0)
        return number if self.spreads else -number

    def of_all(self, states: Iterable[AgentState]) -> list[int]:
        """Return the penalties of these agents."""
        number, sign = self.companions.get, 1 if self.spreads else -1
        return [sign * number(state.order, 0) for state in states]


class Launches:
    """The number of kernels of each launch on each agent, including placements of this pass."""

    def __init__(self, agents: Sequence[AgentView]) -> None:
        self._companions: dict[str, dict[int, int]] = {}
        for order, agent in enumerate(agents):
            for launch, number in agent.companions.items():
                self._companions.setdefault(launch, {})[order] = number

    def affinity(self, session: SessionView) -> Affinity | None:
        """Return the session's preference; None if it has none, or no agent runs kernels of its launch yet."""
        if session.placement not in ("spread", "pack"):
            return None
        companions = self._companions.get(launch_of(session), _NONE)
        return Affinity(companions, spreads=session.placement == "spread") if companions else None

    def count(self, launch: str, order: int, kernels: int) -> None:
        """Count kernels placed on an agent, or removed from it (negative)."""
        companions = self._companions.setdefault(launch, {})
        companions[order] = companions.get(order, 0) + kernels
        if not companions[order]:
            del companions[order]

    def copy(self) -> Launches:
        """Return an independent copy."""
        other = Launches(())
        other._companions = {launch: dict(companions) for launch, companions in self._companions.items()}
        return other


def launch_of(session: SessionView) -> str:
    """Return the id of the session's launch. Without a launch: the session's own id if it has a placement preference,
    else ""."""
    return session.launch or (str(session.id) if session.placement else "")
