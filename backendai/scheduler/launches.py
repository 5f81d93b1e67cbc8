"""How the sessions of one launch like to lie: spread over the agents, or packed on few."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from backendai.scheduler.room import Room
from backendai.scheduler.snapshot import AgentView, SessionView

_NONE: Mapping[int, int] = {}


class Taste:
    """What one session likes. ``companions``: by an agent's place, the kernels of its launch there."""

    __slots__ = ("companions", "spreads")

    def __init__(self, companions: Mapping[int, int], *, spreads: bool) -> None:
        self.companions, self.spreads = companions, spreads

    def of(self, room: Room) -> int:
        """Return how little an agent is liked."""
        number = self.companions.get(room.order, 0)
        return number if self.spreads else -number

    def of_all(self, rooms: Iterable[Room]) -> list[int]:
        """Return how little each of the agents is liked."""
        number, sign = self.companions.get, 1 if self.spreads else -1
        return [sign * number(room.order, 0) for room in rooms]


class Launches:
    """By launch, how many of its kernels each agent has, those of this pass included."""

    def __init__(self, agents: Sequence[AgentView]) -> None:
        self._companions: dict[str, dict[int, int]] = {}
        for order, agent in enumerate(agents):
            for launch, number in agent.companions.items():
                self._companions.setdefault(launch, {})[order] = number

    def taste(self, session: SessionView) -> Taste | None:
        """Return what the session likes, or None when all agents are alike to it."""
        if session.placement not in ("spread", "pack"):
            return None
        companions = self._companions.get(launch_of(session), _NONE)
        return Taste(companions, spreads=session.placement == "spread") if companions else None

    def count(self, launch: str, order: int, kernels: int) -> None:
        """Note kernels that came to an agent, or went (less than none)."""
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
    """Return the launch that the session's kernels belong to: a session with a wish but no launch is its own."""
    return session.launch or (str(session.id) if session.placement else "")
