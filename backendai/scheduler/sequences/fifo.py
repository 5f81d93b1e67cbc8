"""First in, first out: strict, or letting others pass sessions after enough tries."""

from __future__ import annotations

from backendai.core.messages import Message
from backendai.scheduler.sequence import Line, Sequence, may_be_passed
from backendai.scheduler.snapshot import SessionView


def fifo(line: Line) -> list[SessionView]:
    """Return the oldest session first; sessions that others may pass come last, also by age. With backfill, or without
    a limit of tries, all sessions are in order of age."""
    rules, now = line.rules, line.now
    if not rules.retries_to_skip or rules.backfill:
        return line.sessions
    pushed_back = [session for session in line.sessions if may_be_passed(session, rules, now)]
    return [session for session in line.sessions if not may_be_passed(session, rules, now)] + pushed_back


SEQUENCE = Sequence("fifo", Message("first in, first out"), fifo, is_strict=True)
