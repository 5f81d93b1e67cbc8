"""One run: what was asked for, how far it is, and what it has printed."""

from __future__ import annotations

import time
from typing import Any, Callable  # noqa: UP035

from backendai.agent.guest.journal import LARGEST_READ, Journal
from backendai.agent.guest.output import Output

QUEUED, STARTING, CLEANING, BUILDING = "QUEUED", "STARTING", "CLEANING", "BUILDING"
RUNNING, WAITING_INPUT, INTERRUPTING = "RUNNING", "WAITING_INPUT", "INTERRUPTING"
FINISHED, LOST, CANCELLED = "FINISHED", "LOST", "CANCELLED"
ENDED = frozenset({FINISHED, LOST, CANCELLED})
_MOVES = {
    QUEUED: {STARTING, RUNNING, CLEANING, CANCELLED},
    STARTING: {RUNNING, LOST},
    CLEANING: {BUILDING, INTERRUPTING, FINISHED, LOST},
    BUILDING: {RUNNING, INTERRUPTING, FINISHED, LOST},
    RUNNING: {WAITING_INPUT, INTERRUPTING, FINISHED, LOST},
    WAITING_INPUT: {RUNNING, INTERRUPTING, FINISHED, LOST},
    INTERRUPTING: {FINISHED, LOST},
}
_TOLD = ("run_id", "context", "mode", "state", "exit_code", "reason", "prompt", "password", "step", "created_at",
         "started_at", "ended_at")  # fmt: skip


class Run:
    """``record`` is what the journal keeps of it beside its items. ``changed`` wakes those who wait."""

    def __init__(self, journal: Journal, record: dict[str, Any], changed: Callable[[], None]) -> None:
        self.record, self._journal, self._changed = record, journal, changed
        self.output = Output(journal.log(record["run_id"]), changed)
        self.version = 0

    @property
    def run_id(self) -> str:
        """Its name, chosen by the one who asked for it."""
        return str(self.record["run_id"])

    @property
    def state(self) -> str:
        """Where it is in its life."""
        return str(self.record["state"])

    @property
    def has_ended(self) -> bool:
        """Whether nothing more happens to it, but late output."""
        return self.state in ENDED

    def move(self, state: str, **facts: Any) -> bool:
        """Move to a state and note facts with it; returns False, and does nothing, where that move does not exist."""
        if state not in _MOVES.get(self.state, ()):
            return False
        if state in ENDED:
            self.output.flush()
            facts.setdefault("ended_at", time.time())
        elif self.state == QUEUED:
            facts.setdefault("started_at", time.time())
        self.record.update(facts, state=state)
        self._journal.save(self.record)
        self.version += 1
        self._changed()
        return True

    def say(self, text: str) -> None:
        """Add a sentence of the platform to its output."""
        self.output.add({"type": "log", "text": text})

    def told(self) -> dict[str, Any]:
        """Return what readers are told beside the items."""
        return {name: self.record.get(name) for name in _TOLD}

    def read(self, after: int, limit: int = LARGEST_READ) -> dict[str, Any]:
        """Return state, items from ``after`` on and the offset to go on from."""
        self.output.flush()
        items, offset = self.output.log.read(after, limit)
        return {**self.told(), "items": items, "offset": offset, "end": self.output.log.end}


def new_record(number: int, order: dict[str, Any]) -> dict[str, Any]:
    """Return the record of a run that begins its life."""
    return {
        "number": number,
        "run_id": order["run_id"],
        "context": order["context"],
        "mode": order["mode"],
        "code": order["code"],
        "options": order["options"],
        "timeout": order["timeout"],
        "state": QUEUED,
        "exit_code": None,
        "reason": "",
        "created_at": time.time(),
    }
