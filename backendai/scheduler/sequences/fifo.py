"""Sequence ``fifo``: first in, first out, strict or with passing. Sessions that were tried too often may then be
passed."""

from __future__ import annotations

from backendai.base.core.messages import Message
from backendai.scheduler.sequence import Line, Sequence, may_be_passed
from backendai.scheduler.snapshot import SessionView


def fifo(line: Line) -> list[SessionView]:
    """Return the oldest session first. Sessions that others may pass come last, sorted by age. With backfill, or
    without a limit of tries, all sessions are sorted by age."""
    rules, now = line.rules, line.now
    if not rules.retries_to_skip or rules.backfill:
        return line.sessions
    pushed_back = [session for session in line.sessions if may_be_passed(session, rules, now)]
    return [session for session in line.sessions if not may_be_passed(session, rules, now)] + pushed_back


SEQUENCE = Sequence("fifo", Message("first in, first out"), fifo, is_strict=True)
