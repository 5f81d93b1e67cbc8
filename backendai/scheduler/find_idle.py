"""Finds idle sessions. Their owners are warned first, and the sessions end after the warning time.

``find_idle`` checks each session against each rule that applies. Earlier warnings are part of its input, so the loop
that ends sessions, a session's page and tests get the same answer. A session whose use is unknown is never idle.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum
from uuid import UUID

LIFETIME, NETWORK, UTILIZATION = "session-lifetime", "network-timeout", "utilization"
ALL, ANY = "all", "any"
LEAST_COVERED = 0.8  # the share of a period that must be measured; otherwise the use is unknown


class Verdict(StrEnum):
    """The decision of a rule about a session: keep it, warn its owner, or end it (COLLECT)."""

    KEEP = "keep"
    WARN = "warn"
    COLLECT = "collect"


@dataclass(frozen=True, slots=True)
class Rule:
    """An idle checker.

    ``limit``: the maximum run time, the maximum time without traffic, or the period over which use is averaged.
    ``grace``: the time after the start without checks. ``lead``: the time between warning and end. ``thresholds``: by
    slot, the share of the allocation (0 to 1) below which the slot counts as unused. ``match``: whether all slots must
    be unused, or one of them suffices. ``sign``: a fingerprint of these values; it shows whether a warning was made by
    an older version of the rule.
    """

    id: int
    name: str
    kind: str
    limit: timedelta
    grace: timedelta
    lead: timedelta
    thresholds: Mapping[str, float] = field(default_factory=dict)
    match: str = ALL
    sign: str = ""


@dataclass(frozen=True, slots=True)
class Use:
    """A session's average use of its allocation, by slot (0 to 1; None: not measured). Slots that the session does not
    have are missing. ``covered``: how much time was measured."""

    shares: Mapping[str, float | None]
    covered: timedelta


@dataclass(frozen=True, slots=True)
class Recorded:
    """The stored state of a session under a rule: the active warning, and the time to which the end was extended."""

    sign: str = ""
    warned_at: datetime | None = None
    due_at: datetime | None = None
    extended_until: datetime | None = None


@dataclass(frozen=True, slots=True)
class Watched:
    """A running session as idle rules see it.

    ``known_since``: from this time on, the record of its traffic has no gap. ``last_traffic``: the last recorded
    traffic (None: no record). ``uses``: measured use by rule. ``recorded``: stored state by rule.
    """

    id: UUID
    started_at: datetime
    known_since: datetime
    is_reachable: bool
    last_traffic: datetime | None
    rules: tuple[Rule, ...]
    uses: Mapping[int, Use] = field(default_factory=dict)
    recorded: Mapping[int, Recorded] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Finding:
    """The result of one rule for one session. ``code``: a short reason. ``due_at``: when the session ends if nothing
    changes (None: unknown). ``since``: when the rule's period began. ``shares``: the measured use by slot."""

    session: UUID
    rule: Rule
    verdict: Verdict
    code: str
    due_at: datetime | None = None
    since: datetime | None = None
    shares: Mapping[str, float | None] = field(default_factory=dict)


def find_idle(sessions: Sequence[Watched], now: datetime) -> Iterator[Finding]:
    """Yield the result of each rule for each session, in the given order."""
    for session in sessions:
        for rule in session.rules:
            yield _check(session, rule, now)


def _check(session: Watched, rule: Rule, now: datetime) -> Finding:
    recorded = session.recorded.get(rule.id, _NOTHING)
    spared_until = max(filter(None, [session.started_at + rule.grace, recorded.extended_until]))
    if rule.kind == UTILIZATION:
        return _by_use(session, rule, recorded, spared_until, now)
    if rule.kind == LIFETIME:
        return _by_time(
            session, rule, recorded, max(session.started_at + rule.limit, spared_until), now, session.started_at
        )
    if rule.kind == NETWORK:
        return _by_traffic(session, rule, recorded, spared_until, now)
    return Finding(session.id, rule, Verdict.KEEP, "unknown-kind")


def _by_traffic(session: Watched, rule: Rule, recorded: Recorded, spared_until: datetime, now: datetime) -> Finding:
    if session.last_traffic is None or not session.is_reachable:
        code = "not-reachable" if not session.is_reachable else "traffic-unknown"
        return Finding(session.id, rule, Verdict.KEEP, code)
    since = max(session.last_traffic, session.known_since, session.started_at)
    shares: Mapping[str, float | None] = {}
    if rule.thresholds:  # a busy session is in use even without traffic
        use = session.uses.get(rule.id)
        code = _why_used(use, rule)
        shares = use.shares if use else {}
        if code:
            return Finding(session.id, rule, Verdict.KEEP, code, None, since, shares)
    return _by_time(session, rule, recorded, max(since + rule.limit, spared_until), now, since, shares)


def _by_use(session: Watched, rule: Rule, recorded: Recorded, spared_until: datetime, now: datetime) -> Finding:
    use = session.uses.get(rule.id)
    shares = use.shares if use else {}
    first = max(spared_until, session.started_at + rule.limit)
    if now < session.started_at + rule.grace or now < session.started_at + rule.limit:
        return Finding(session.id, rule, Verdict.KEEP, "grace", None, None, shares)
    code = "not-reachable" if not session.is_reachable else _why_used(use, rule)
    if code:
        return Finding(session.id, rule, Verdict.KEEP, code, None, None, shares)
    # Idle as of now: the session ends once the warning has lasted for the lead.
    return _by_time(session, rule, recorded, first, now, now - rule.limit, shares)


def _by_time(
    session: Watched,
    rule: Rule,
    recorded: Recorded,
    over_at: datetime,
    now: datetime,
    since: datetime | None,
    shares: Mapping[str, float | None] | None = None,
) -> Finding:
    """Return the result for a session that can run until ``over_at``. The owner is warned ``lead`` earlier. The session
    ends once a warning by this version of the rule has lasted for ``lead``."""

    def found(verdict: Verdict, code: str, due_at: datetime) -> Finding:
        return Finding(session.id, rule, verdict, code, due_at, since, shares or {})

    if now < over_at - rule.lead:
        return found(Verdict.KEEP, "in-use" if rule.kind == NETWORK else "in-time", over_at)
    if recorded.warned_at is None or recorded.due_at is None or recorded.sign != rule.sign:
        return found(Verdict.WARN, "near-end", max(over_at, now + rule.lead))
    due_at = max(recorded.due_at, recorded.warned_at + rule.lead, over_at)
    return found(Verdict.COLLECT, "over", due_at) if now >= due_at else found(Verdict.WARN, "near-end", due_at)


def _why_used(use: Use | None, rule: Rule) -> str:
    """Return the code of the reason why the session counts as used; empty if its use is below the thresholds."""
    if use is None or use.covered < rule.limit * LEAST_COVERED:
        return "not-measured"
    # Slots that the session lacks are left out; an unmeasured slot that it has may be busy.
    below = [None if (share := use.shares[slot]) is None else share < least for slot, least in rule.thresholds.items()
             if slot in use.shares]  # fmt: skip
    if rule.match == ANY and any(below):
        return ""
    if not below or None in below:
        return "not-measured"
    return "" if all(below) else "in-use"


_NOTHING = Recorded()
