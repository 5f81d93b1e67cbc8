"""Carries out the idle policy: warns owners, ends sessions, and withdraws warnings."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

from backendai.base.core.durations import describe_duration
from backendai.base.core.messages import Message
from backendai.domain.cluster.slot_types import look_of
from backendai.domain.compute.services.life.idle import (
    IdleCase,
    collect_idle,
    delete_stale_idle,
    postpone,
    warn_idle,
    withdraw,
)
from backendai.domain.compute.services.records.traffic import note_traffic
from backendai.domain.planning.idle.reading import IdleReading, WarningRow
from backendai.scheduler.find_idle import LIFETIME, UTILIZATION, Finding, Verdict

_Recorded = Mapping[tuple[UUID, int | None], WarningRow]


def act_on_idle(reading: IdleReading) -> int:
    """Warn idle sessions, withdraw warnings of sessions in use, and end sessions whose warning time is over.

    Returns the number of these actions. At most ``MOST_AT_ONCE`` of each kind; the next pass continues. For sessions
    without recorded traffic, the time without traffic begins now.
    """
    now = reading.now
    recorded = {(one.session_id, one.checker_id): one for one in reading.warnings}
    found = {(one.session, one.rule.id): one for one in reading.findings}
    note_traffic(dict.fromkeys(reading.without_traffic, now))
    obsolete = [
        one.id for key, one in recorded.items() if one.warned_at and not _is_idle(found.get((key[0], key[1] or 0)))
    ]
    changed = withdraw(obsolete, now=now)
    postpone(dict(_later_ends(reading.findings, recorded)))
    idle = [one for one in reading.findings if one.verdict != Verdict.KEEP]
    changed += warn_idle([_case(one, now) for one in idle if not _is_warned(one, recorded)], now=now)
    due = [_case(one, now) for one in idle if one.verdict == Verdict.COLLECT]
    changed += len(collect_idle(due, now=now))
    delete_stale_idle()
    return changed


def messages_of(finding: Finding, now: datetime) -> tuple[str, str]:
    """Return two messages for the owner: the warning before an idle end, and the message after it. The warning contains
    times instead of durations, as the owner may read it later."""
    rule = finding.rule
    of = {"name": rule.name, "limit": describe_duration(rule.limit)}
    since = describe_duration(now - finding.since) if finding.since else ""
    moment = f"{finding.since.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC" if finding.since else ""
    if rule.kind == LIFETIME:
        return (
            Message("Running since {moment}; idle checker {name} ends sessions after {limit}.", moment=moment, **of),
            Message("It ran for {since}; idle checker {name} allows {limit}.", since=since, **of),
        )
    if rule.kind == UTILIZATION:
        of |= {"used": _percentages(finding.shares), "least": _percentages(rule.thresholds)}
        return (
            Message("It used {used} on average over {limit}; idle checker {name} ends sessions below {least}.", **of),
            Message("Average utilization {used} over {limit}; idle checker {name} requires {least}.", **of),
        )
    return (
        Message(
            "Unused since {moment}; idle checker {name} ends sessions after {limit} without use.", moment=moment, **of
        ),
        Message("No traffic for {since}; idle checker {name} allows {limit}.", since=since, **of),
    )


def numbers_of(finding: Finding, now: datetime) -> dict[str, Any]:
    """Return the numbers behind the messages as JSON, for scripts."""
    rule = finding.rule
    numbers: dict[str, Any] = {"limit_seconds": round(rule.limit.total_seconds())}
    if finding.since and rule.kind != UTILIZATION:
        numbers["measured_seconds"] = round((now - finding.since).total_seconds())
    if rule.thresholds:
        numbers["measured_percent"] = percent_of(finding.shares)
        numbers["threshold_percent"] = percent_of(rule.thresholds)
    return numbers


def percent_of(shares: Mapping[str, float | None]) -> dict[str, float]:
    """Return shares as percentages, without unmeasured ones."""
    return {slot: round(share * 100, 2) for slot, share in sorted(shares.items()) if share is not None}


def _is_idle(finding: Finding | None) -> bool:
    return finding is not None and finding.verdict != Verdict.KEEP


def _is_warned(finding: Finding, recorded: _Recorded) -> bool:
    one = recorded.get((finding.session, finding.rule.id))
    return one is not None and one.warned_at is not None and one.sign == finding.rule.sign


def _later_ends(findings: Iterable[Finding], recorded: _Recorded) -> Iterable[tuple[UUID, datetime]]:
    for finding in findings:
        one = recorded.get((finding.session, finding.rule.id))
        stands = one and one.warned_at and one.sign == finding.rule.sign and finding.verdict == Verdict.WARN
        if one and stands and one.due_at and finding.due_at and finding.due_at > one.due_at:
            yield one.id, finding.due_at


def _case(finding: Finding, now: datetime) -> IdleCase:
    rule = finding.rule
    message, end_message = messages_of(finding, now)
    return IdleCase(
        session_id=finding.session,
        checker_id=rule.id,
        checker_name=rule.name,
        kind=rule.kind,
        sign=rule.sign,
        lead=rule.lead,
        due_at=finding.due_at or now + rule.lead,
        idle_since=finding.since,
        message=message,
        end_message=end_message,
        measured=percent_of(finding.shares),
        numbers=numbers_of(finding, now),
    )


def _percentages(shares: Mapping[str, float | None]) -> str:
    parts = [
        Message("{slot} {percent} %", slot=look_of(slot).display_name, percent=f"{percent:g}")
        for slot, percent in percent_of(shares).items()
    ]
    return Message.joined(parts, ", ")
