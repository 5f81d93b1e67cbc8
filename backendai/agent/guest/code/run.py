"""One run: its order, its state and its output."""

from __future__ import annotations

import time
from typing import Any, Callable  # noqa: UP035

from backendai.agent.guest.code.journal import LARGEST_READ, Journal
from backendai.agent.guest.code.output import Output

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
_TOLD = ("run_id", "number", "context", "language", "mode", "state", "exit_code", "reason", "prompt", "password",
         "step", "created_at", "started_at", "ended_at")  # fmt: skip


class Run:
    """``record``: the saved facts about the run, without its items. ``changed`` wakes waiting readers."""

    def __init__(self, journal: Journal, record: dict[str, Any], changed: Callable[[], None]) -> None:
        self.record, self._journal, self._changed = record, journal, changed
        self.output = Output(journal.log(record["run_id"]), changed)
        self.version = 0

    @property
    def run_id(self) -> str:
        """The run's name, chosen by the requester."""
        return str(self.record["run_id"])

    @property
    def number(self) -> int:
        """The run's number in the session, from 1."""
        return int(self.record["number"])

    @property
    def state(self) -> str:
        return str(self.record["state"])

    @property
    def has_ended(self) -> bool:
        """Whether the run has ended; only late output can follow."""
        return self.state in ENDED

    def move(self, state: str, **facts: Any) -> bool:
        """Change the state and save facts with it. Returns False, and does nothing, for a transition that does not
        exist."""
        if state not in _MOVES.get(self.state, ()):
            return False
        if state in ENDED:
            self.output.flush()
            facts.setdefault("ended_at", time.time())
        elif self.state == QUEUED:
            facts.setdefault("started_at", time.time())
        self.record.update(facts, state=state)
        self.save()
        self.version += 1
        self._changed()
        return True

    def save(self) -> None:
        """Save the record to disk, so that a later guest knows the run."""
        self._journal.save(self.record)

    def say(self, text: str) -> None:
        """Add a message of the platform to the output."""
        self.output.add({"type": "log", "text": text})

    def told(self) -> dict[str, Any]:
        """Return the run's facts for readers, without items."""
        return {name: self.record.get(name) for name in _TOLD}

    def end_step(self, name: str, exit_code: int) -> None:
        """Record the end of a step in batch mode, and the offset of its output."""
        self.output.flush()
        ended = {"name": name, "exit_code": exit_code, "offset": self.output.log.end}
        self.record["steps"] = [*self.record.get("steps", ()), ended]
        self._changed()

    @property
    def has_step_to_tell(self) -> bool:
        """Whether an ended step was not returned by ``take`` yet."""
        return len(self.record.get("steps", ())) > int(self.record.get("told_steps") or 0)

    def take(self, *, again: bool = False) -> dict[str, Any]:
        """Return the output that was not returned yet, for readers that keep no offset. The last part of a step has
        ``ended_step``."""
        if again:
            self.record.update(taken=0, told_steps=0)
        taken = int(self.record.get("taken") or 0)
        if not self.has_step_to_tell:
            told = self.read(taken)
        else:
            told_steps = int(self.record.get("told_steps") or 0)
            step = self.record["steps"][told_steps]
            told = self.read(taken, min(LARGEST_READ, step["offset"] - taken))
            if told["offset"] >= step["offset"]:
                told["ended_step"] = step
                self.record["told_steps"] = told_steps + 1
        self.record["taken"] = told["offset"]
        self._journal.save(self.record)
        return told

    def read(self, after: int, limit: int = LARGEST_READ) -> dict[str, Any]:
        """Return the state, the items from offset ``after`` on, and the next offset."""
        self.output.flush()
        items, offset = self.output.log.read(after, limit)
        return {**self.told(), "items": items, "offset": offset, "end": self.output.log.end}


def new_record(number: int, order: dict[str, Any]) -> dict[str, Any]:
    """Return the record of a new run."""
    return {
        "number": number,
        "run_id": order["run_id"],
        "context": order["context"],
        "language": order["language"],
        "mode": order["mode"],
        "code": order["code"],
        "options": order["options"],
        "timeout": order["timeout"],
        "state": QUEUED,
        "exit_code": None,
        "reason": "",
        "created_at": time.time(),
    }
