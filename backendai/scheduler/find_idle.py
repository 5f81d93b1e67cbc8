"""Finds idle sessions. Their owners are warned first, and the sessions end after the warning time.

``find_idle`` checks each session against each rule that applies. Earlier warnings are part of its input, so the loop
that ends sessions, a session's page and tests get the same answer. A session whose use is unknown is never idle.
The kinds of rules are in ``idle_kinds``.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum
from uuid import UUID

from backendai.base.core.messages import Message, MessageTemplate

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
    an older version of the rule. ``stops``: the end is a stop, after which the session can be resumed.
    """

    id: int
    name: str
    kind: IdleKind
    limit: timedelta
    grace: timedelta
    lead: timedelta
    thresholds: Mapping[str, float] = field(default_factory=dict)
    match: str = ALL
    sign: str = ""
    stops: bool = False


@dataclass(frozen=True, slots=True)
class Use:
    """A session's average use of its allocation, by slot (0 to 1; None: not measured). Slots that the session does not
    have are missing. ``covered``: how much time was measured."""

    shares: Mapping[str, float | None]
    covered: timedelta


@dataclass(frozen=True, slots=True)
class Recorded:
    """The stored state of a session under a rule: the active warning, and the time to which the end was extended.
    ``id``: of the warning."""

    sign: str = ""
    warned_at: datetime | None = None
    due_at: datetime | None = None
    extended_until: datetime | None = None
    id: UUID | None = None


_NOTHING = Recorded()


@dataclass(frozen=True, slots=True)
class Watched:
    """A running session as idle rules see it.

    ``known_since``: from this time on, the record of its traffic has no gap. ``last_traffic``: the last recorded
    traffic (None: no record). ``uses``: measured use by rule. ``recorded``: stored state by rule (None: deleted).
    """

    id: UUID
    started_at: datetime
    known_since: datetime
    is_reachable: bool
    last_traffic: datetime | None
    rules: tuple[Rule, ...]
    uses: Mapping[int, Use] = field(default_factory=dict)
    recorded: Mapping[int | None, Recorded] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Finding:
    """The result of one rule for one session. ``code``: a short reason. ``due_at``: when the session ends if nothing
    changes (None: unknown). ``since``: when the rule's period began. ``shares``: the measured use by slot.
    ``recorded``: the stored state of a session that is or will be idle."""

    session: UUID
    rule: Rule
    verdict: Verdict
    code: str
    due_at: datetime | None = None
    since: datetime | None = None
    shares: Mapping[str, float | None] = field(default_factory=dict)
    recorded: Recorded = _NOTHING

    @property
    def is_warned(self) -> bool:
        """Whether the owner was warned by this version of the rule."""
        return self.recorded.warned_at is not None and self.recorded.sign == self.rule.sign


_NO_SHARES: Mapping[str, float | None] = {}


class IdleKind(ABC):
    """A kind of idle checkers: how its rules decide, which readings they need, and what people read about them.

    ``reason``: the code of the end. ``is_average``: it looks at the use during the whole limit, so no time without use
    is measured. ``thresholds_missing``, ``thresholds_refused``: the error of a checker without, or with, thresholds.
    Texts have the gaps ``name`` (of the checker), ``limit``, ``least`` (thresholds), and those of a finding ``used``,
    ``moment`` and ``since`` (the beginning of the idle time, and how long it lasts).
    """

    name: str
    label: Message
    reason: str
    reason_text: Message
    needs_traffic = False
    is_average = False
    thresholds_missing = Message()
    thresholds_refused = Message()
    about_thresholds = Message()  # in the form
    warning: MessageTemplate
    end: MessageTemplate  # why it ended
    sentence: MessageTemplate  # before a launch
    sentence_with_thresholds = MessageTemplate()
    short: MessageTemplate  # the same in some words
    help: MessageTemplate  # on the page of a session
    help_with_thresholds = MessageTemplate()
    help_without_thresholds = MessageTemplate()
    ends: MessageTemplate  # on the page of a session: ``when`` and ``at``
    in_use = Message("In use.")

    @abstractmethod
    def check(self, session: Watched, rule: Rule, now: datetime) -> Finding:
        """Return the result of a rule of this kind."""

    def weighs_use(self, rule: Rule, started_at: datetime, last_traffic: datetime | None, now: datetime) -> bool:
        """Return whether the measured use could end the session now. Only then is the use summed up, which is
        expensive."""
        return now >= started_at + max(rule.grace, rule.limit)


def find_idle(sessions: Sequence[Watched], now: datetime) -> Iterator[Finding]:
    """Yield the result of each rule for each session, in the given order."""
    for session in sessions:
        for rule in session.rules:
            yield rule.kind.check(session, rule, now)


def by_time(
    session: Watched,
    rule: Rule,
    now: datetime,
    *,
    start: datetime,
    since: datetime,
    shares: Mapping[str, float | None] = _NO_SHARES,
    code: str = "in-time",
) -> Finding:
    """Return the result for a session that can run for the limit after ``start``, for its grace and its extension. The
    owner is warned ``lead`` earlier (before: ``code``). The session ends once a warning by this version of the rule has
    lasted for ``lead``."""
    recorded = session.recorded.get(rule.id, _NOTHING)
    over_at = max(filter(None, [start + rule.limit, session.started_at + rule.grace, recorded.extended_until]))

    def found(verdict: Verdict, code: str, due_at: datetime) -> Finding:
        return Finding(session.id, rule, verdict, code, due_at, since, shares, recorded)

    if now < over_at - rule.lead:
        return found(Verdict.KEEP, code, over_at)
    if recorded.warned_at is None or recorded.due_at is None or recorded.sign != rule.sign:
        return found(Verdict.WARN, "near-end", max(over_at, now + rule.lead))
    due_at = max(recorded.due_at, recorded.warned_at + rule.lead, over_at)
    return found(Verdict.COLLECT, "over", due_at) if now >= due_at else found(Verdict.WARN, "near-end", due_at)


def why_used(use: Use | None, rule: Rule) -> str:
    """Return the code of the reason why the session counts as used; empty if its use is below the thresholds."""
    if use is None or use.covered < rule.limit * LEAST_COVERED:
        return "not-measured"
    # Slots that the session lacks are left out; an unmeasured slot that it has may be busy.
    below = [None if (share := use.shares[slot]) is None else share < least for slot, least in rule.thresholds.items()
             if slot in use.shares]  # fmt: skip
    if rule.match == ANY and any(below):
        return ""
    if not below:
        return "nothing-to-measure"
    if None in below:
        return "not-measured"
    return "" if all(below) else "in-use"
